"""Whose sessions a gateway ends when it takes a book: asked of sockets that answer as OpenVPN's management does."""

import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from vpn.keeper.sessions import end_sessions
from vpn.keeper.trouble import Unfinished


@contextmanager
def daemon(path: Path, *served: str, mute: bool = False) -> Iterator[list[str]]:
    """Serve these laptops at a socket, and take note of whom it is told to cut off."""
    killed: list[str] = []

    def answer(question: str) -> str:
        if question.startswith("kill "):
            killed.append(question.removeprefix("kill "))
            return "SUCCESS: common name found\n" if killed[-1] in served else "ERROR: not found\n"
        rows = (f"CLIENT_LIST\t{name}\t-\t10.0.0.2\t\t1\t1\t-\t1\t-\n" for name in served)
        return "".join((*rows, "END\n"))

    def serve(listening: socket.socket) -> None:
        while True:
            try:
                line, _ = listening.accept()
            except OSError:
                return
            with line:
                question = line.makefile().readline().strip()
                if not mute:
                    line.sendall(answer(question).encode())

    with socket.socket(socket.AF_UNIX) as listening, ExitStack() as after:
        listening.bind(str(path))
        listening.listen()
        after.callback(listening.shutdown, socket.SHUT_RDWR)
        threading.Thread(target=serve, args=(listening,), daemon=True).start()
        yield killed


def test_who_is_let_in_no_more_is_cut_off_though_nobody_names_them(tmp_path: Path) -> None:
    """A cut that failed once is made up by the next book; who is let in, and who is shaking hands, stays."""
    udp = tmp_path / "udp"

    with daemon(udp, "ada.laptop", "bob.laptop", "UNDEF") as killed:
        ended = end_sessions({udp: {"bob.laptop"}}, ())

    assert (killed, ended) == (["ada.laptop"], {"ada.laptop": 1})


def test_a_daemon_that_is_mute_keeps_nobody_in_at_the_other(tmp_path: Path) -> None:
    """All daemons are asked before it is told that one did not answer; one that does not run serves nobody."""
    mute, tcp, gone = tmp_path / "udp", tmp_path / "tcp", tmp_path / "gone"

    with daemon(mute, mute=True), daemon(tcp, "ada.laptop") as killed, pytest.raises(Unfinished, match="udp"):
        end_sessions({mute: (), gone: (), tcp: ()}, ("ada.laptop",))

    assert killed == ["ada.laptop"]
