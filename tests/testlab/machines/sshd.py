"""A real sshd on loopback, which the fake of AWS's session-manager-plugin connects to."""

import getpass
import os
import shlex
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.testlab.machines import session_plugin
from tests.testlab.run import need_program


@dataclass(frozen=True)
class Server:
    """A running sshd: its port and host key, and the options of a login by its user."""

    port: int
    key: str
    login: tuple[str, ...]

    @property
    def session(self) -> dict[str, str]:
        """The answer to StartSession; the fake plugin reads the port from the token."""
        return {"SessionId": "ada-1", "StreamUrl": "wss://x", "TokenValue": str(self.port)}


@contextmanager
def running_server(folder: Path) -> Iterator[Server]:
    """Run sshd as the user of the tests, on a free port."""
    need_program("sshd")
    for name in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    settings = {
        "ListenAddress": f"127.0.0.1:{port}",
        "HostKey": folder / "host",
        "AuthorizedKeysFile": folder / "user.pub",
        "PidFile": "none",
        "StrictModes": "no",
        "Subsystem": "sftp internal-sftp",
    }
    (folder / "config").write_text("".join(f"{key} {value}\n" for key, value in settings.items()))
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)
    command = [str(shutil.which("sshd")), "-D", "-e", "-f", str(folder / "config")]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as daemon:
        try:
            _wait_for(port)
            key = " ".join((folder / "host.pub").read_text().split()[:2])
            yield Server(port, key, ("--user", getpass.getuser(), "--identity", str(folder / "user")))
        finally:
            daemon.terminate()


def _wait_for(port: int) -> None:
    for _ in range(200):
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except ConnectionRefusedError:
            time.sleep(0.05)
        else:
            return
    pytest.fail("sshd does not listen")


def install_plugin(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put the fake plugin first on PATH."""
    program = folder / "session-manager-plugin"
    folder.mkdir()
    program.write_text(f'#!/bin/sh\nexec {shlex.join([sys.executable, "-P", session_plugin.__file__])} "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)
