"""Fakes of VPN daemons: OpenVPN's management socket, strongSwan's VICI socket, and a parser of strongswan.conf."""

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
    """Run a management socket with these connected laptops; yield the commands it gets; `mute`: never answer."""
    commands: list[str] = []

    def answer(command: str) -> str:
        if command.startswith("status"):
            return client_list()
        commands.append(command)
        verb, _, name = command.partition(" ")
        return "SUCCESS: done\n" if verb == "signal" or name in served else "ERROR: not found\n"

    def client_list() -> str:
        rows = (f"CLIENT_LIST\t{name}\t198.51.100.7:1194\t10.0.0.2\t\t1\t1\t-\t1\t-\n" for name in served)
        return "".join((*rows, "END\n"))

    def serve(listening: socket.socket) -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            with connection:
                command = connection.makefile().readline().strip()
                if not mute:
                    connection.sendall(answer(command).encode())

    with socket.socket(socket.AF_UNIX) as listening, ExitStack() as stack:
        path.unlink(missing_ok=True)
        listening.bind(str(path))
        listening.listen()
        stack.callback(listening.shutdown, socket.SHUT_RDWR)
        threading.Thread(target=serve, args=(listening,), daemon=True).start()
        yield commands


_COMMAND, _ANSWER = 0, 1
_SECTION_START, _SECTION_END, _VALUE, _LIST_START, _LIST_ITEM, _LIST_END = range(1, 7)
_SUCCESS = bytes([_VALUE, len(b"success")]) + b"success" + struct.pack("!H", 3) + b"yes"


@dataclass(frozen=True)
class ViciSocket:
    """The URI of a VICI socket, and the commands it got: name and values by key, without sections."""

    uri: str
    commands: list[tuple[str, dict[str, list[bytes]]]] = field(default_factory=list)


@contextmanager
def vici_socket(folder: Path) -> Iterator[ViciSocket]:
    """Run a VICI socket in a folder."""
    path = folder / "ear.vici"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        vici = ViciSocket(f"unix://{path}")
        threading.Thread(target=_serve, args=(listener, vici), daemon=True).start()
        yield vici


def _serve(listener: socket.socket, vici: ViciSocket) -> None:
    try:
        while True:
            client, _ = listener.accept()
            with client:
                _answer(client, vici)
    except OSError:
        return


def _answer(client: socket.socket, vici: ViciSocket) -> None:
    while head := client.recv(4, socket.MSG_WAITALL):
        packet = client.recv(struct.unpack("!I", head)[0], socket.MSG_WAITALL)
        if packet[0] == _COMMAND:
            end = 2 + packet[1]
            vici.commands.append((packet[2:end].decode(), _values(packet[end:])))
        client.sendall(struct.pack("!I", len(_SUCCESS) + 1) + bytes([_ANSWER]) + _SUCCESS)


def _values(message: bytes) -> dict[str, list[bytes]]:
    values: dict[str, list[bytes]] = {}
    offset, key = 0, ""
    while offset < len(message):
        kind, offset = message[offset], offset + 1
        if kind in (_SECTION_START, _VALUE, _LIST_START):
            length = message[offset]
            key, offset = message[offset + 1 : offset + 1 + length].decode(), offset + 1 + length
        if kind in (_VALUE, _LIST_ITEM):
            (length,) = struct.unpack("!H", message[offset : offset + 2])
            values.setdefault(key, []).append(message[offset + 2 : offset + 2 + length])
            offset += 2 + length
    return values


Settings = Mapping[str, Any]


def read_settings(text: str) -> Settings:
    """Return sections as mappings and values as text. Raises ValueError for an unclosed section or an invalid line."""
    lines = (line.strip() for line in text.splitlines())
    section, closed = _section(line for line in lines if line and not line.startswith("#"))
    if closed:
        raise ValueError("a closing brace without a section")
    return section


def _section(lines: Iterator[str]) -> tuple[dict[str, Any], bool]:
    """Return the content of a section, and whether it is closed."""
    section: dict[str, Any] = {}
    for line in lines:
        if line == "}":
            return section, True
        name, value, is_section = _parse_line(line)
        if name in section:
            raise ValueError(f"{name} is set twice")
        section[name] = value if not is_section else _read_section(name, lines)
    return section, False


def _parse_line(line: str) -> tuple[str, str, bool]:
    if line.endswith("{"):
        return line.removesuffix("{").strip(), "", True
    name, equals, value = (part.strip() for part in line.partition("="))
    if not equals or not name:
        raise ValueError(f"not a setting: {line!r}")
    return name, value, False


def _read_section(name: str, lines: Iterator[str]) -> dict[str, Any]:
    section, closed = _section(lines)
    if not closed:
        raise ValueError(f"{name} is not closed")
    return section
