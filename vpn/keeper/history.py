"""Which journal of keys the book in force came out of: none that is older, or was written apart, takes its place.

Never reads a journal. A mark stands for one of its lines and all before it; the last of a book's is where it had come.
"""

from .place import Place
from .text_file import put
from .trouble import Refusal


def check_history(place: Place, marks: tuple[str, ...], *, is_with_keys: bool) -> None:
    """Refuse a book unless its journal goes on where that of the book in force had come.

    A journal that begins otherwise is another authority's, and comes with the keys of that.
    """
    known = _known(place)
    if not known or known[-1] in marks or (is_with_keys and marks and marks[0] != known[0]):
        return
    if not marks or marks[-1] in known:
        raise Refusal(
            "somebody has signed since: what is in force here is newer than what was sent. Take over their fleet.pki"
            " (git pull), then `bedplate vpn sync`"
        )
    if marks[0] != known[0]:
        raise Refusal("what is in force here is of another authority: `bedplate vpn sync` brings the keys of this one")
    raise Refusal(
        "two have signed apart: what is in force here is in the other's journal, and not in the one that was sent."
        " Take theirs in by `bedplate vpn join`, then `bedplate vpn sync`"
    )


def remember_history(place: Place, marks: tuple[str, ...]) -> None:
    """Keep the marks of the book that is in force now."""
    if marks != _known(place):
        put(place.history, "".join(f"{mark}\n" for mark in marks))


def _known(place: Place) -> tuple[str, ...]:
    return tuple(place.history.read_text().split()) if place.history.exists() else ()
