"""Sessions of laptops at an OpenVPN daemon: read and ended over its management socket."""

import json
import socket
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ..program import write_text
from .paths import IncompleteError

_TIMEOUT_S = 1.0
SUCCESS = "SUCCESS:"
_LAST_WORDS = ("END", SUCCESS, "ERROR:")
_CLIENT, _ROUTE = "CLIENT_LIST", "ROUTING_TABLE"
# The name of a laptop whose handshake is not finished; some never finish it.
_UNNAMED = "UNDEF"


def run_command(path: Path, command: str) -> tuple[str, ...] | None:
    """Return the lines that a daemon answers, or None if no daemon listens; raise IncompleteError without an answer."""
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(_TIMEOUT_S)
            connection.connect(str(path))
            connection.sendall(f"{command}\n".encode())
            return tuple(_read_answer(connection))
    except (FileNotFoundError, ConnectionRefusedError):
        return None
    except OSError as error:
        raise IncompleteError(f"{path} does not answer: {error}") from error


def _read_answer(connection: socket.socket) -> Iterator[str]:
    with connection.makefile("r", encoding="utf-8", errors="replace") as lines:
        for line in lines:
            text = line.rstrip("\r\n")
            if text.startswith(">"):  # a notification, not part of the answer
                continue
            yield text
            if text.startswith(_LAST_WORDS):
                return
    raise ConnectionResetError("connection closed before the end of the answer")


@dataclass(frozen=True)
class Session:
    """A laptop's session: bytes from and to the laptop, its start and its last packet in Unix time.

    `last` is None until the first packet that is not a keepalive. `source` is the address on the internet.
    """

    name: str
    address: str
    received: int
    sent: int
    since: int
    last: int | None
    source: str = ""


def read_sessions(path: Path) -> tuple[Session, ...] | None:
    """Return the sessions of the daemon at a socket, or None if it does not run. A handshake is no session yet."""
    lines = run_command(path, "status 3")
    if lines is None:
        return None
    rows = [line.split("\t") for line in lines]
    last_packets = {row[1]: int(row[5]) for row in rows if row[0] == _ROUTE}
    return tuple(_parse_session(row, last_packets) for row in rows if row[0] == _CLIENT and row[1] != _UNNAMED)


def _parse_session(row: list[str], last_packets: dict[str, int]) -> Session:
    _, name, source, address, _, received, sent, _, since, *_ = row
    last = last_packets.get(address)
    return Session(name, address, int(received), int(sent), int(since), last, source.rpartition(":")[0])


def end_sessions(allowed: Mapping[Path, Collection[str]], names: Collection[str]) -> dict[str, int]:
    """End the sessions of these names, and of laptops that are connected and no longer allowed.

    `allowed` maps the socket of each daemon to the names it may serve. Return the number of ended sessions by name.
    Raise IncompleteError, after all daemons were called, if one did not answer.
    """
    ended = dict.fromkeys(sorted(names), 0)
    errors: list[IncompleteError] = []
    for path, allowed_names in allowed.items():
        try:
            connected = {session.name for session in read_sessions(path) or ()}
            for name in sorted({*names, *(connected - {*allowed_names})}):
                lines = run_command(path, f"kill {name}") or ("",)
                ended[name] = ended.get(name, 0) + lines[-1].startswith(SUCCESS)
        except IncompleteError as error:
            errors.append(error)
    if errors:
        raise errors[0]
    return ended


LastSeen = dict[str, int]


def update_last_seen(file: Path, sessions: Iterable[Session], now: int) -> LastSeen:
    """Return when each laptop was last connected, in Unix time; a damaged file counts as empty."""
    return {**_read_last_seen(file), **{session.name: now for session in sessions}}


def write_last_seen(file: Path, last_seen: Mapping[str, int]) -> None:
    """Write when each laptop was last connected."""
    write_text(file, json.dumps(dict(sorted(last_seen.items()))))


def _read_last_seen(file: Path) -> LastSeen:
    try:
        return {str(name): int(moment) for name, moment in json.loads(file.read_text()).items() if name != _UNNAMED}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


Starts = dict[str, tuple[tuple[int, str], ...]]
"""Start and source of the sessions of each laptop that lasted less than a minute, and of its newest session."""
# A laptop that has been away for longer begins again; one that loses its session is back in seconds.
_AWAY_S, _MOST_STARTS = 300, 10


def update_starts(file: Path, sessions: Iterable[Session], now: int) -> Starts:
    """Return the starts after one more look at the sessions; there is one each minute."""
    starts = {name: old for name, old in read_starts(file).items() if now - old[-1][0] <= _AWAY_S}
    for session in sessions:
        newest, old = (session.since, session.source), starts.get(session.name, ())
        starts[session.name] = (newest,) if newest in old else (*old, newest)[-_MOST_STARTS:]
    return starts


def read_starts(file: Path) -> Starts:
    """Return the stored starts; a damaged file counts as empty."""
    try:
        document = json.loads(file.read_text())
        return {name: tuple((int(since), str(source)) for since, source in old) for name, old in document.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}
