"""The sshd of machines: whether it answers, a ProxyCommand's transfer of bytes, host keys, and the known_hosts file.

Without a path to a machine, AWS's plugin for Session Manager carries the connection. Only keys in the lock
are trusted.
"""

import base64
import binascii
import hashlib
import os
import platform
import re
import socket
import subprocess
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from shutil import which
from threading import Thread

from bedplate.errors import InputError, MachineError, PartialError, ViolationError
from bedplate.plan.nodes import NodePlan, NodeRole, Platform

PORT = 22
# A lost first packet is sent again after one second.
_CONNECT_SECONDS = 2.0
_MAX_THREADS = 32
_CHUNK = 1 << 18


def connect(host: str) -> socket.socket | None:
    """Return a connection to the SSH port of a host name or address; None if no SSH server answers within two seconds.

    A server speaks first (RFC 4253, section 4.2). Some firewalls and proxies accept a connection to any address.
    """
    try:
        connection = socket.create_connection((host, PORT), _CONNECT_SECONDS)
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


_SSHFP = re.compile(r"4 2 ([0-9a-f]{64})", re.ASCII | re.IGNORECASE)
FINGERPRINT = re.compile(r"SHA256:[A-Za-z0-9+/]{43}", re.ASCII)


def fingerprint(key: str) -> str:
    """Return the fingerprint of a public key, `SHA256:...`, as ssh-keygen prints it."""
    return _format(hashlib.sha256(base64.b64decode(key.split()[1])).digest())


def fingerprint_of_sshfp(text: str) -> str | None:
    """Return the fingerprint of an SSHFP record; None unless it is of an Ed25519 key (4) by SHA-256 (2).

    Source: RFC 4255, RFC 6594, RFC 7479. SHA-1 is not secure, and machines publish no other key type.
    """
    match = _SSHFP.fullmatch(text)
    return _format(bytes.fromhex(match[1])) if match else None


def parse_fingerprint(text: str) -> str:
    """Return an operator's fingerprint, with the prefix `SHA256:` added if missing; InputError if malformed."""
    prefixed = text if text.startswith("SHA256:") else f"SHA256:{text}"
    prefixed = prefixed.rstrip("=")
    if not FINGERPRINT.fullmatch(prefixed):
        fix = "run `ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub` at the machine's console"
        raise InputError(f"{text} is not a SHA256 fingerprint of a host key", fix=fix)
    return prefixed


def keys_of_scan(text: str) -> Iterator[str]:
    """Yield each key in the output of ssh-keyscan, without the host name."""
    for line in text.splitlines():
        words = line.split()
        if len(words) == 3 and not line.startswith("#") and _is_key(words[2]):  # noqa: PLR2004  host, kind, key
            yield f"{words[1]} {words[2]}"


def known_hosts(nodes: Iterable[NodePlan], keys: Mapping[str, tuple[str, ...]]) -> str:
    """Return a known_hosts file of the machines with recorded keys, under full name and fixed address.

    ssh looks up the name (HostKeyAlias); paramiko, which pyinfra uses by default, looks up the address.
    """
    return "".join(f"{_names(node)} {key}\n" for node in nodes for key in keys.get(node.name, ()))


def _format(digest: bytes) -> str:
    return "SHA256:" + base64.b64encode(digest).decode().rstrip("=")


def _names(node: NodePlan) -> str:
    return f"{node.full_name},{node.address}" if node.address else node.full_name


def _is_key(text: str) -> bool:
    try:
        return bool(base64.b64decode(text, validate=True))
    except binascii.Error:
        return False


_SECONDS = 10


_ADDRESS = re.compile(r"(?:\[(?P<ipv6>.+)\]|(?P<host>[^:]+)):(?P<port>[0-9]{1,5})", re.ASCII)
# ssh writes the key of a server that it does not know into a new file, then the login fails.
_NO_LOGIN = (
    *("-T", "-a", "-x", "-o", "BatchMode=yes", "-o", "LogLevel=ERROR", "-o", "PreferredAuthentications=none"),
    *("-o", "StrictHostKeyChecking=accept-new", "-o", "HostKeyAlgorithms=ssh-ed25519", "-o", "VerifyHostKeyDNS=no"),
    *("-o", "GlobalKnownHostsFile=none", "-o", "KnownHostsCommand=none", "-o", "HashKnownHosts=no"),
    *("-o", "CheckHostIP=no", "-o", "UpdateHostKeys=no", "-o", "ControlMaster=no", "-o", "ControlPath=none"),
)


def scan_host_keys(address: str, config: Path | None = None) -> tuple[str, ...]:
    """Return the Ed25519 keys that the SSH server at an address (HOST or HOST:PORT) offers.

    With an OpenSSH configuration, `address` is a name in it. Raises PartialError without an answer. Only this key type
    is stable: the role `hardened` removes ECDSA keys and replaces short RSA keys.
    """
    match = _ADDRESS.fullmatch(address)
    host, port = (match["ipv6"] or match["host"], ("-p", match["port"])) if match else (address, ())
    if config is None:
        keys = _scan(address, ("ssh-keyscan", "-T", str(_SECONDS), "-t", "ed25519", *port, host))
    else:
        with tempfile.TemporaryDirectory(prefix="bedplate-") as folder:
            file = Path(folder) / "known_hosts"
            options = (*_NO_LOGIN, "-o", f"UserKnownHostsFile={file}", "-o", f"ConnectTimeout={_SECONDS}")
            _scan(address, ("ssh", "-F", str(config), *options, *port, "--", host, "true"))
            keys = tuple(keys_of_scan(file.read_text())) if file.exists() else ()
    if not keys:
        fix = "check that it is up, that sshd runs, and the VPN connection; without the VPN pass --ssh-config FILE"
        raise PartialError(f"{address} offers no Ed25519 host key", fix=fix)
    return keys


def _scan(address: str, command: Sequence[str]) -> tuple[str, ...]:
    try:
        result = subprocess.run(command, errors="replace", capture_output=True, check=False, timeout=6 * _SECONDS)  # noqa: S603
    except FileNotFoundError:
        raise MachineError(f"{command[0]} not found", fix="install the OpenSSH client") from None
    except subprocess.TimeoutExpired:
        raise PartialError(f"{address}: {command[0]} timed out", fix="check the VPN connection") from None
    return tuple(keys_of_scan(result.stdout))


def verified_host_key(name: str, offered: Iterable[str], expected_fingerprints: Collection[str], fix: str) -> str:
    """Return the offered key with an expected fingerprint; ViolationError if there is none."""
    keys = {fingerprint(key): key for key in offered}
    for expected in expected_fingerprints:
        if expected in keys:
            return keys[expected]
    message = f"{name} offers the host key {', '.join(keys)}, expected {', '.join(expected_fingerprints)}"
    raise ViolationError(message, fix=fix)


def trust_instructions(node: NodePlan) -> str:
    """Return how to record a machine's host key in the lock."""
    if node.platform is Platform.CLOUD and NodeRole.WORKER in node.roles:
        return "the lock records no keys of workers: use an ssh configuration with its key, --ssh-config"
    if node.platform is Platform.CLOUD:
        return f"run `bedplate node trust {node.name}`: AWS reads the key from the instance"
    return f"read the fingerprint at its console, then run `bedplate node trust {node.name} SHA256:...`"
