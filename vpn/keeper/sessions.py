"""The laptops that one daemon serves just now, as its management socket tells them, and how one is cut off."""

import json
import socket
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from .place import Unfinished

_SECONDS = 1.0
_LAST_WORDS = ("END", "SUCCESS:", "ERROR:")


def ask(path: Path, question: str) -> tuple[str, ...] | None:
    """Return the lines of the answer, or None where no daemon listens; Unfinished when one does not answer."""
    try:
        with socket.socket(socket.AF_UNIX) as line:
            line.settimeout(_SECONDS)
            line.connect(str(path))
            line.sendall(f"{question}\n".encode())
            return tuple(_answer(line))
    except (FileNotFoundError, ConnectionRefusedError):
        return None
    except OSError as error:
        raise Unfinished(f"{path} does not answer: {error}") from error


def _answer(line: socket.socket) -> Iterator[str]:
    with line.makefile("r", encoding="utf-8", errors="replace") as told:
        for each in told:
            text = each.rstrip("\r\n")
            if text.startswith(">"):  # news that nobody asked for
                continue
            yield text
            if text.startswith(_LAST_WORDS):
                return
    raise ConnectionResetError("it hung up")


_CLIENT, _ROUTE = "CLIENT_LIST", "ROUTING_TABLE"
_KILLED = "SUCCESS:"
_NAMELESS = "UNDEF"


@dataclass(frozen=True)
class Session:
    """A laptop's session: bytes from and to it, and since when it stands and last sent or got a packet, in Unix time.

    `last` is None while nothing but the session's own keepalives has crossed.
    """

    name: str
    address: str
    received: int
    sent: int
    since: int
    last: int | None


def sessions(socket: Path) -> tuple[Session, ...] | None:
    """Return the sessions of the daemon at a socket, or None where it does not run."""
    told = ask(socket, "status 3")
    if told is None:
        return None
    rows = [line.split("\t") for line in told]
    last = {row[1]: int(row[5]) for row in rows if row[0] == _ROUTE}
    return tuple(_session(row, last) for row in rows if row[0] == _CLIENT)


def end_sessions(let_in: Mapping[Path, Collection[str]], named: Collection[str]) -> dict[str, int]:
    """End the sessions of whoever is named, and of whoever a daemon still serves and lets in no more.

    `let_in` holds each daemon's socket and the names that it lets in: a cut that failed once is made up by the next
    book. Returns how many sessions ended by name; raises Unfinished for a daemon that did not answer, when all others
    were asked.
    """
    ended = dict.fromkeys(sorted(named), 0)
    silent: list[Unfinished] = []
    for socket, names in let_in.items():
        try:
            # A laptop whose handshake goes on is called UNDEF.
            served = {each.name for each in sessions(socket) or () if each.name != _NAMELESS}
            for name in sorted({*named, *(served - {*names})}):
                ended[name] = ended.get(name, 0) + cut(socket, name)
        except Unfinished as error:
            silent.append(error)
    if silent:
        raise silent[0]
    return ended


def cut(socket: Path, name: str) -> int:
    """End every session of a laptop at the daemon of that socket, and return how many there were."""
    told = ask(socket, f"kill {name}") or ("",)
    return told[-1].startswith(_KILLED)


def _session(row: list[str], last: dict[str, int]) -> Session:
    _, name, _, address, _, received, sent, _, since, *_ = row
    return Session(name, address, int(received), int(sent), int(since), last.get(address))


Seen = dict[str, int]


def seen(file: Path, sessions: Iterable[Session], now: int) -> Seen:
    """Return when each laptop was last connected, in Unix time: now for those that are. A spoilt file tells nothing."""
    return {**_read(file), **{each.name: now for each in sessions}}


def remember(file: Path, known: Mapping[str, int]) -> None:
    """Put it at a path whole."""
    file.parent.mkdir(mode=0o755, exist_ok=True)
    fresh = file.with_name(f".{file.name}.new")
    fresh.write_text(json.dumps(dict(sorted(known.items()))))
    fresh.replace(file)


def _read(file: Path) -> Seen:
    try:
        told = json.loads(file.read_text())
        return {str(name): int(moment) for name, moment in told.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}
