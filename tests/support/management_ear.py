"""A stand-in for an OpenVPN daemon's management socket: it serves whom it is told to, and notes its orders."""

import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path


@contextmanager
def daemon(path: Path, *served: str, mute: bool = False) -> Iterator[list[str]]:
    """Serve these laptops at a socket, and take note of what it is told to do; a mute one answers nothing."""
    orders: list[str] = []

    def answer(question: str) -> str:
        if question.startswith("status"):
            return listed()
        orders.append(question)
        verb, _, name = question.partition(" ")
        return "SUCCESS: done\n" if verb == "signal" or name in served else "ERROR: not found\n"

    def listed() -> str:
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
        path.unlink(missing_ok=True)
        listening.bind(str(path))
        listening.listen()
        after.callback(listening.shutdown, socket.SHUT_RDWR)
        threading.Thread(target=serve, args=(listening,), daemon=True).start()
        yield orders
