"""Many connections over one pair of pipes: frames of a number, a size and as many bytes; empty ones begin and end."""

import socket
import struct
from collections.abc import Callable
from contextlib import suppress
from threading import RLock, Thread
from typing import IO

_HEAD, _PART = struct.Struct(">II"), 1 << 16
# Seconds for which one receiver that takes nothing may keep all others waiting.
_PATIENCE = 20
Accept = Callable[[], socket.socket]


class Channels:
    """One end of the pipes. `accept` returns the connection for a new number; without it, only this end begins any."""

    def __init__(self, source: IO[bytes], sink: IO[bytes], accept: "Accept | None" = None) -> None:
        self._source, self._sink, self._accept = source, sink, accept
        self._links, self._lock, self._last = dict[int, socket.socket](), RLock(), 0
        self.is_open = True

    def open(self) -> socket.socket:
        """Return a new connection to the other end. Raises OSError if the pipes are closed."""
        own, other = socket.socketpair()
        # The other end takes numbers in their order.
        with self._lock:
            self._last += 1
            self._start(self._last, other)
            try:
                self.send(self._last, b"")
            except (OSError, ValueError):
                self.is_open = False
        if not self.is_open:
            own.close()
            raise ConnectionError("the connection to the session is closed")
        return own

    def send(self, number: int, data: bytes) -> None:
        """Send a frame. Raises OSError or ValueError if the pipes are closed."""
        with self._lock:
            self._sink.write(_HEAD.pack(number, len(data)) + data)
            self._sink.flush()

    def receive(self) -> "tuple[int, bytes] | None":
        """Return the number and the bytes of the next frame; None at the end."""
        head = self._source.read(_HEAD.size)
        if len(head) < _HEAD.size:
            return None
        number, size = _HEAD.unpack(head)
        data = self._source.read(size)
        return (number, data) if len(data) == size else None

    def run(self) -> None:
        """Pass on what the other end sends, until the pipes are closed."""
        while frame := self.receive():
            self._pass(*frame)
        self.is_open = False
        for link in [*self._links.values()]:
            _shut_down(link)

    def _pass(self, number: int, data: bytes) -> None:
        # What comes late for a connection that has ended must not begin another one.
        if self._accept and number > self._last:
            self._last = number
            try:
                self._start(number, self._accept())
            except OSError:
                self.send(number, b"")
            return
        link = self._links.get(number)
        if link:
            try:
                link.sendall(data)
            except OSError:
                data = b""
            if not data:
                _shut_down(link)

    def _start(self, number: int, link: socket.socket) -> None:
        link.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", _PATIENCE, 0))
        self._links[number] = link
        Thread(target=self._send_all, args=(number, link), daemon=True).start()

    def _send_all(self, number: int, link: socket.socket) -> None:
        """Send what a connection brings, and its end."""
        with suppress(OSError, ValueError), link:
            while data := link.recv(_PART):
                self.send(number, data)
        self._links.pop(number, None)
        with suppress(OSError, ValueError):
            self.send(number, b"")


def _shut_down(link: socket.socket) -> None:
    with suppress(OSError):
        link.shutdown(socket.SHUT_RDWR)
