"""What a gateway's daemons are still owed of the books that it took: a note that stays until all of it is done.

Written before anything of a book is in force, so that neither a daemon that is mute nor an end of the power loses any.
"""

import json
from dataclasses import dataclass
from pathlib import Path

from .text_file import put


@dataclass(frozen=True)
class Owed:
    """Laptops whose sessions are to end, and transports whose daemons are to start anew, by new keys."""

    cut: frozenset[str] = frozenset()
    anew: frozenset[str] = frozenset()

    def __or__(self, other: "Owed") -> "Owed":
        """Return what both are owed."""
        return Owed(self.cut | other.cut, self.anew | other.anew)

    def document(self) -> dict[str, list[str]]:
        """Return it as JSON's own types."""
        return {"cut": sorted(self.cut), "anew": sorted(self.anew)}


NOTHING = Owed()


def read_owed(file: Path) -> Owed:
    """Return what is still owed; a spoilt note tells nothing."""
    try:
        told = json.loads(file.read_text())
        return Owed(frozenset(map(str, told["cut"])), frozenset(map(str, told["anew"])))
    except (OSError, ValueError, TypeError, KeyError):
        return NOTHING


def note(file: Path, owed: Owed) -> None:
    """Put a note of it at a path whole; none where nothing is owed."""
    if owed == NOTHING:
        file.unlink(missing_ok=True)
        return
    file.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    put(file, json.dumps(owed.document()))
