"""A command beside the program of a run, in its container: `exec` of Kubernetes over a WebSocket.

Source: RFC 6455; Kubernetes' v5.channel.k8s.io, KEP-4006: the first byte of a message is its stream.
"""

import json
import os
import select
import sys
import termios
import tty
from base64 import b64encode
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from secrets import token_bytes
from urllib.parse import urlencode

from .cluster import Api
from .hub import BpError, write
from .jobset import CONTAINER

_STDIN, _STDOUT, _STDERR, _STATUS, _SIZE, _CLOSE = 0, 1, 2, 3, 4, 255
_CONTINUED, _BINARY, _END, _PING, _PONG = 0, 2, 8, 9, 10
_PART, _TIMEOUT, _TICK = 1 << 15, 60.0, 0.5
_LAST, _MASKED, _LENGTH = 0x80, 0x80, 0x7F
# Lengths that announce two and eight bytes with the length.
_LONG, _LONGEST = 126, 127
_HEAD = {_LONG: 4, _LONGEST: 10}
_OUTPUTS = {_STDOUT: 1, _STDERR: 2}


def attach(api: Api, run: str, command: Sequence[str]) -> int:
    """Run a command in the container of a run, with this terminal if there is one; return its exit code.

    Raises BpError if the run has no container now, or the connection is cut.
    """
    has_terminal = sys.stdin.isatty() and sys.stdout.isatty()
    options = {"container": CONTAINER, "stdin": "true", "stdout": "true"}
    options.update({"tty": "true"} if has_terminal else {"stderr": "true"})
    query = urlencode([*options.items(), *(("command", word) for word in command)])
    try:
        with closing(_Stream(api, f"{api.running_pod(run)}/exec?{query}")) as stream, _raw(is_needed=has_terminal):
            return stream.copy(has_terminal=has_terminal)
    except OSError as error:
        raise BpError(f"the connection to {run} is cut: {error}", "attach again") from None


@contextmanager
def _raw(*, is_needed: bool) -> Iterator[None]:
    """Let the program in the container have each key of this terminal."""
    if not is_needed:
        yield
        return
    former = termios.tcgetattr(0)
    tty.setraw(0)
    try:
        yield
    finally:
        termios.tcsetattr(0, termios.TCSADRAIN, former)


class _Stream:
    """A WebSocket to a path of the API, after its handshake. Raises OSError if it is cut."""

    def __init__(self, api: Api, path: str) -> None:
        self._socket, self._data = api.connect(_TIMEOUT), b""
        lines = [f"GET {path} HTTP/1.1", f"Host: {api.host}", f"Authorization: Bearer {api.token()}"]
        lines += ["Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13"]
        lines += [f"Sec-WebSocket-Key: {b64encode(token_bytes(16)).decode()}"]
        lines += ["Sec-WebSocket-Protocol: v5.channel.k8s.io"]
        try:
            self._socket.sendall("\r\n".join((*lines, "", "")).encode())
            while b"\r\n\r\n" not in self._data:
                self._receive()
            head, _, self._data = self._data.partition(b"\r\n\r\n")
            _check_head(head.decode(errors="replace"))
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End the connection."""
        self._socket.close()

    def copy(self, *, has_terminal: bool) -> int:
        """Copy keys to the command and its output back; return its exit code."""
        inputs, size, status = [0], b"", b""
        while True:
            if has_terminal and (now := _terminal_size()) != size:
                size = now
                self._send(_SIZE, size)
            waited = [self._socket.fileno(), *inputs]
            ready = waited[:1] if self._socket.pending() else select.select(waited, [], [], _TICK)[0]
            if 0 in ready:
                data = os.read(0, _PART)
                self._send(_STDIN, data) if data else self._send(_CLOSE, bytes([_STDIN]))
                inputs = inputs if data else []
            if self._socket.fileno() in ready:
                self._receive()
            for stream, data in self._messages():
                if stream in _OUTPUTS:
                    write(data, _OUTPUTS[stream])
                elif stream == _STATUS:
                    status = data
                elif stream < 0:
                    return _exit_code(status)

    def _receive(self) -> None:
        part = self._socket.recv(_PART)
        if not part:
            raise ConnectionError("closed by the other side")
        self._data += part

    def _messages(self) -> Iterator[tuple[int, bytes]]:
        """Yield streams and data of the frames that are complete; -1 at the end."""
        while frame := _frame(self._data):
            kind, data, self._data = frame
            if kind == _PING:
                self._send_frame(_PONG, data)
            elif kind == _END:
                yield -1, b""
                return
            elif kind in {_BINARY, _CONTINUED} and data:
                # Servers of Kubernetes send a message in one frame.
                yield data[0], data[1:]

    def _send(self, stream: int, data: bytes) -> None:
        self._send_frame(_BINARY, bytes([stream]) + data)

    def _send_frame(self, kind: int, data: bytes) -> None:
        size, key = len(data), token_bytes(4)
        length = bytes([_MASKED | size]) if size < _LONG else bytes([_MASKED | _LONG]) + size.to_bytes(2, "big")
        mask = int.from_bytes((key * (size // 4 + 1))[:size], "big")
        masked = (int.from_bytes(data, "big") ^ mask).to_bytes(size, "big")
        self._socket.sendall(bytes([_LAST | kind]) + length + key + masked)


def _check_head(head: str) -> None:
    """Raise BpError if the API has not accepted the request."""
    line = head.partition("\r\n")[0]
    if not line.startswith("HTTP/1.1 101"):
        raise BpError(f"the cluster refuses: {line}", "ask your operator")


def _frame(data: bytes) -> "tuple[int, bytes, bytes] | None":
    """Return the kind and the content of the first frame, and what follows; None if it is not complete."""
    size = data[1] & _LENGTH if data[1:] else 0
    start = _HEAD.get(size, 2)
    if len(data) < start:
        return None
    end = start + (size if size < _LONG else int.from_bytes(data[2:start], "big"))
    return (data[0] & 0x0F, data[start:end], data[end:]) if len(data) >= end else None


def _terminal_size() -> bytes:
    columns, lines = os.get_terminal_size(1)
    return json.dumps({"Width": columns, "Height": lines}).encode()


def _exit_code(status: bytes) -> int:
    """Return the exit code of a Status object; 0 for success."""
    with suppress(ValueError, LookupError, TypeError):
        document = json.loads(status)
        if document["status"] == "Success":
            return 0
        causes = {cause["reason"]: cause["message"] for cause in document["details"]["causes"]}
        return int(causes["ExitCode"])
    raise BpError("the command could not run in the container", "the image may lack it")
