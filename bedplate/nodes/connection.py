"""TCP connections to the sshd of machines: whether one answers, and a ProxyCommand's transfer of bytes.

Without a path to a machine, AWS's plugin for Session Manager carries the connection.
"""

import os
import platform
import socket
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from shutil import which
from threading import Thread

from bedplate.errors import MachineError

PORT = 22
# A lost first packet is sent again after one second.
_SECONDS = 2.0
_MAX_THREADS = 32
_CHUNK = 1 << 18


def connect(host: str) -> socket.socket | None:
    """Return a connection to the SSH port of a host name or address; None if no SSH server answers within two seconds.

    A server speaks first (RFC 4253, section 4.2). Some firewalls and proxies accept a connection to any address.
    """
    try:
        connection = socket.create_connection((host, PORT), _SECONDS)
    except OSError:
        return None
    if _receive(connection, socket.MSG_PEEK).startswith(b"SSH-"):
        return connection
    connection.close()
    return None


def answering(hosts: Collection[str]) -> frozenset[str]:
    """Return the hosts whose SSH port answers; all are tried at once."""

    def answers(host: str) -> bool:
        connection = connect(host)
        if connection:
            connection.close()
        return connection is not None

    if not hosts:
        return frozenset()
    with ThreadPoolExecutor(min(_MAX_THREADS, len(hosts))) as pool:
        return frozenset(host for host, is_up in zip(hosts, pool.map(answers, hosts), strict=True) if is_up)


def relay(connection: socket.socket, reader: int, writer: int) -> None:
    """Copy bytes from a file descriptor to a connection, and from it to another one, until the connection ends."""
    connection.settimeout(None)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    Thread(target=_send, args=(connection, reader), daemon=True).start()
    with connection:
        while data := _receive(connection):
            while data:
                data = data[os.write(writer, data) :]


def _send(connection: socket.socket, reader: int) -> None:
    try:
        while data := os.read(reader, _CHUNK):
            connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
    except OSError:
        pass  # the other direction ends as well


def _receive(connection: socket.socket, flags: int = 0) -> bytes:
    try:
        return connection.recv(_CHUNK, flags)
    except OSError:
        return b""


PLUGIN = "session-manager-plugin"
_DOWNLOADS = "https://s3.amazonaws.com/session-manager-downloads/plugin/latest"


def check_plugin() -> None:
    """Raise MachineError, with the command that installs it, if Session Manager's plugin is missing."""
    if which(PLUGIN) is None:
        raise MachineError(f"{PLUGIN} is not installed", fix=f"run `{_install_command()}`")


def _install_command() -> str:
    if platform.system() == "Darwin":
        return f"brew install --cask {PLUGIN}"
    arch = "arm64" if platform.machine() in {"aarch64", "arm64"} else "64bit"
    if which("dpkg"):
        package = f"{PLUGIN}.deb"
        return f"curl -fO {_DOWNLOADS}/ubuntu_{arch}/{package} && sudo dpkg -i {package}"
    return f"sudo dnf install -y {_DOWNLOADS}/linux_{arch}/{PLUGIN}.rpm"
