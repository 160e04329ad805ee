"""Messages between the agents of a run: lines of JSON over TCP, with a proof of the run's token."""

import fcntl
import hmac
import json
import os
import socket
import struct
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from tempfile import NamedTemporaryFile
from threading import Lock
from typing import Any, Union

BEAT, LOST = 1.0, 5.0
"""Seconds between signs of life, and without one until a peer is lost."""
# Seconds for a file to begin.
_FILE = 600.0
_LARGEST, _PART = 1 << 20, 1 << 20
# The request for the address of an interface: netdevice(7).
_SIOCGIFADDR = 0x8915
Message = Mapping[str, Any]


class Link:
    """A connection to another agent. `heard` is the time of its last line, `addresses` are the own and the other one.

    Methods raise OSError if the peer is lost.

    The token never travels: each line has a code (HMAC) by the token, random values of both sides, and its number.
    """

    def __init__(self, connection: socket.socket, token: str, *, is_coordinator: bool) -> None:
        connection.settimeout(LOST)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.addresses = connection.getsockname()[0], connection.getpeername()[0]
        self._connection, self._file, self._lock = connection, connection.makefile("rb"), Lock()
        self._sides = ("coordinator", "member") if is_coordinator else ("member", "coordinator")
        self._sent, self._received, self.heard = 0, 0, time.monotonic()
        own = os.urandom(32).hex()
        connection.sendall(f"{own}\n".encode())
        other = self._line().decode("ascii", "replace").strip()
        values = f"{own} {other}" if is_coordinator else f"{other} {own}"
        self._key = hmac.digest(token.encode(), f"bedplate gang {values}".encode(), "sha256")

    def send(self, kind: str, **facts: object) -> None:
        """Send a message."""
        data = json.dumps({"type": kind, **facts}).encode()
        with self._lock:
            self._connection.sendall(self._code(self._sides[0], self._sent, data) + b" " + data + b"\n")
            self._sent += 1

    def receive(self, seconds: "float | None" = LOST) -> Message:
        """Wait for the next message; signs of life are none, and without one the peer is lost after these seconds."""
        self._connection.settimeout(seconds)
        while True:
            code, _, data = self._line().rstrip(b"\n").partition(b" ")
            if not hmac.compare_digest(code, self._code(self._sides[1], self._received, data)):
                raise ConnectionError("the peer has another token")
            self._received, self.heard = self._received + 1, time.monotonic()
            message: Message = json.loads(data)
            if message["type"] != "beat":
                return message

    def send_file(self, path: Path) -> None:
        """Send a file, after a message with its size. Who gets it checks the content."""
        with path.open("rb") as file:
            self.send("file", size=os.fstat(file.fileno()).st_size)
            self._connection.sendfile(file)

    def receive_file(self, path: Path) -> None:
        """Wait for a file, which appears when it is complete. Raises OSError, ValueError or LookupError."""
        # The peer may wait for it, too.
        left = int(self.receive(_FILE)["size"])
        with NamedTemporaryFile(dir=path.parent, prefix=".part-", delete=False) as file:
            try:
                while left:
                    data = self._file.read(min(left, _PART))
                    if not data:
                        raise ConnectionError("the connection has ended")
                    left -= file.write(data)
                file.flush()
                os.fsync(file.fileno())
                Path(file.name).replace(path)
            except OSError:
                Path(file.name).unlink()
                raise

    def _line(self) -> bytes:
        line = self._file.readline(_LARGEST)
        if not line.endswith(b"\n"):
            raise ConnectionError("the connection has ended")
        return line

    def _code(self, side: str, number: int, data: bytes) -> bytes:
        return hmac.digest(self._key, f"{side} {number} ".encode() + data, "sha256").hex().encode()

    def close(self) -> None:
        """End the connection, also for a thread that waits for a message."""
        cut(self._connection)
        self._file.close()
        self._connection.close()


def cut(connection: socket.socket) -> None:
    """End a connection that a thread may wait for: `close` alone does nothing while there is a file of it."""
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


class Local:
    """The same between the coordinator and the member in one process: no socket, and it is never lost."""

    heard = float("inf")

    def __init__(self, put: Callable[[Message], object], receive: Callable[[], Message]) -> None:
        self._put, self.receive = put, receive

    def send(self, kind: str, **facts: object) -> None:
        """Send a message."""
        self._put({"type": kind, **facts})

    def close(self) -> None:
        """Do nothing."""


AnyLink = Union[Link, Local]


def connect(host: str, port: int, token: str, seconds: float) -> Link:
    """Return a connection to the coordinator, which may start later. Raises OSError after these seconds."""
    end = time.monotonic() + seconds
    while True:
        try:
            return Link(socket.create_connection((host, port), LOST), token, is_coordinator=False)
        except OSError as error:
            if time.monotonic() > end:
                raise ConnectionError(f"no coordinator at {host}:{port}: {error}") from None
        # A name of a pod may be there later.
        time.sleep(BEAT)


def interface_to(host: str) -> str:
    """Return the network interface by which this machine reaches a host, by its IPv4 address; empty if unknown."""
    with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        # Nothing is sent: the kernel looks for the route.
        probe.connect((host, 1))
        address = socket.inet_aton(probe.getsockname()[0])
        for _, name in socket.if_nameindex():
            with suppress(OSError):
                if fcntl.ioctl(probe, _SIOCGIFADDR, struct.pack("256s", name.encode()))[20:24] == address:
                    return name
    return ""
