"""What daemons are owed, done: sessions ended, and daemons started anew by new keys."""

from collections.abc import Collection, Mapping
from pathlib import Path

from .management import ask
from .owed import Owed, note
from .place import Place
from .sessions import end_sessions
from .trouble import Unfinished

_DONE = "SUCCESS:"


def settle(place: Place, owed: Owed, let_in: Mapping[str, Collection[str]]) -> dict[str, int]:
    """Do what is owed, and return how many sessions ended by name; `let_in` holds whom each transport lets in.

    Raises Unfinished for a daemon that did not answer, when all others were asked; what it is owed stays noted.
    """
    ended: dict[str, int] = {}
    left, silent = owed, []
    try:
        ended = end_sessions({place.socket(each): names for each, names in let_in.items()}, owed.cut)
        left = Owed(anew=left.anew)
    except Unfinished as error:
        silent.append(error)
    for transport in sorted(owed.anew):
        try:
            _start_anew(place.socket(transport))
            left = Owed(left.cut, left.anew - {transport})
        except Unfinished as error:
            silent.append(error)
    note(place.owed, left)
    if silent:
        raise silent[0]
    return ended


def _start_anew(socket: Path) -> None:
    """Have a daemon read its settings anew; one that does not run reads them when it starts."""
    told = ask(socket, "signal SIGHUP")
    if told is not None and not told[-1].startswith(_DONE):
        raise Unfinished(f"{socket} does not start anew: {told[-1][:160]}")
