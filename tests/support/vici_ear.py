"""What swanctl tells a charon, heard at a socket of our own: the real parser's view of a file, and no daemon.

The protocol: strongSwan's libcharon/plugins/vici/README.md. Only what loading needs is understood.
"""

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

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
