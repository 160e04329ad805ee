"""A stand-in for an OpenVPN daemon's management socket: it serves whom it is told to, and notes its orders."""

import socket
import struct
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


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


_COMMAND, _ANSWER = 0, 1
_SECTION_START, _SECTION_END, _VALUE, _LIST_START, _LIST_ITEM, _LIST_END = range(1, 7)
_FINE = bytes([_VALUE, len(b"success")]) + b"success" + struct.pack("!H", 3) + b"yes"


@dataclass(frozen=True)
class Ear:
    """Where to talk to, and what was told: each command's name and its values, by key, sections left out."""

    uri: str
    told: list[tuple[str, dict[str, list[bytes]]]] = field(default_factory=list)


@contextmanager
def ear(folder: Path) -> Iterator[Ear]:
    """Listen in a folder until the block ends."""
    path = folder / "ear.vici"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        heard = Ear(f"unix://{path}")
        threading.Thread(target=_serve, args=(listener, heard), daemon=True).start()
        yield heard


def _serve(listener: socket.socket, heard: Ear) -> None:
    try:
        while True:
            caller, _ = listener.accept()
            with caller:
                _answer(caller, heard)
    except OSError:
        return


def _answer(caller: socket.socket, heard: Ear) -> None:
    while head := caller.recv(4, socket.MSG_WAITALL):
        packet = caller.recv(struct.unpack("!I", head)[0], socket.MSG_WAITALL)
        if packet[0] == _COMMAND:
            end = 2 + packet[1]
            heard.told.append((packet[2:end].decode(), _values(packet[end:])))
        caller.sendall(struct.pack("!I", len(_FINE) + 1) + bytes([_ANSWER]) + _FINE)


def _values(message: bytes) -> dict[str, list[bytes]]:
    found: dict[str, list[bytes]] = {}
    place, key = 0, ""
    while place < len(message):
        kind, place = message[place], place + 1
        if kind in (_SECTION_START, _VALUE, _LIST_START):
            length = message[place]
            key, place = message[place + 1 : place + 1 + length].decode(), place + 1 + length
        if kind in (_VALUE, _LIST_ITEM):
            (length,) = struct.unpack("!H", message[place : place + 2])
            found.setdefault(key, []).append(message[place + 2 : place + 2 + length])
            place += 2 + length
    return found


Settings = Mapping[str, Any]


def read_settings(text: str) -> Settings:
    """Return sections as mappings and values as text; ValueError where a section is not closed or a line is odd."""
    lines = (line.strip() for line in text.splitlines())
    found, closed = _section(line for line in lines if line and not line.startswith("#"))
    if closed:
        raise ValueError("a section is closed that was never opened")
    return found


def _section(lines: Iterator[str]) -> tuple[dict[str, Any], bool]:
    """Return what a section holds, and whether it was closed."""
    found: dict[str, Any] = {}
    for line in lines:
        if line == "}":
            return found, True
        name, value, is_section = _told(line)
        if name in found:
            raise ValueError(f"{name} is set twice")
        found[name] = value if not is_section else _closed(name, lines)
    return found, False


def _told(line: str) -> tuple[str, str, bool]:
    if line.endswith("{"):
        return line.removesuffix("{").strip(), "", True
    name, equals, value = (part.strip() for part in line.partition("="))
    if not equals or not name:
        raise ValueError(f"not a setting: {line!r}")
    return name, value, False


def _closed(name: str, lines: Iterator[str]) -> dict[str, Any]:
    found, closed = _section(lines)
    if not closed:
        raise ValueError(f"{name} is not closed")
    return found
