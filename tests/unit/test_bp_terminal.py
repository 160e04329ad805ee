"""The client of `bp attach` against a server of the cluster that lies. Its certificate is checked before."""

import random
import select
import socket
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from bedplate.programs.bp import terminal
from bedplate.programs.bp.hub import BpError

_ACCEPTED = b"HTTP/1.1 101 Switching Protocols\r\n\r\n"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Any, socket.socket]]:
    """Yield an API whose connection leads to a socket, and that socket."""
    here, there = socket.socketpair()
    there.settimeout(10)
    monkeypatch.setattr(socket.socket, "pending", lambda _: 0, raising=False)
    # Without the stdin of the test.
    ready = SimpleNamespace(select=lambda *_: select.select([here.fileno()], [], [], 0.01))
    monkeypatch.setattr(terminal, "select", ready)
    yield SimpleNamespace(connect=lambda _: here, host="api", token=lambda: "t"), there
    here.close()
    there.close()


@pytest.mark.parametrize("head", [b"", b"\x1b]0;x\x07", b"HTTP/1.1 200 OK", b"HTTP/1.0 101", b"\xff\xfe"])
def test_an_answer_that_is_no_web_socket_is_refused(head: bytes, server: tuple[Any, socket.socket]) -> None:
    """Also one that is empty."""
    api, there = server
    there.sendall(head + b"\r\n\r\n")

    with pytest.raises(BpError, match="the cluster refuses"):
        terminal._Stream(api, "/exec")  # noqa: SLF001  `attach` looks for a pod first


@pytest.mark.parametrize("number", range(40))
def test_frames_of_any_bytes_end_in_words(
    number: int, server: tuple[Any, socket.socket], capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    """Random frames, of each kind and with lengths that are wrong; nothing but output is written."""
    api, there = server
    choice = random.Random(number)  # noqa: S311  a test that can be repeated
    data = _ACCEPTED
    for _ in range(choice.randrange(6)):
        content = choice.randbytes(choice.randrange(125))
        data += bytes([choice.randrange(256), choice.choice([len(content), choice.randrange(256)])]) + content
    there.sendall(data)
    there.shutdown(socket.SHUT_WR)
    stream = terminal._Stream(api, "/exec")  # noqa: SLF001  as above

    with pytest.raises((BpError, OSError)):
        stream.copy(has_terminal=False)

    stream.close()
    assert len(capfdbinary.readouterr().out) < len(data)


@pytest.mark.parametrize(
    "status",
    [
        b"",
        b"[]",
        b"{}",
        b'{"status": "Failure", "details": {"causes": [{"reason": "ExitCode", "message": "x"}]}}',
        b"9" * 99,
    ],
)
def test_an_end_without_a_code_is_no_success(status: bytes, server: tuple[Any, socket.socket]) -> None:
    """The exit code of `bp attach` is that of the command, or an error."""
    api, there = server
    frame = bytes([0x82, len(status) + 1, 3]) + status if len(status) < 120 else b""
    there.sendall(_ACCEPTED + frame + b"\x88\x00")

    with pytest.raises(BpError, match="could not run"):
        terminal._Stream(api, "/exec").copy(has_terminal=False)  # noqa: SLF001  as above
