"""How much room words take: the widest of the common system fonts, so that no viewer's font spills over.

Advances are those of DejaVu Sans and SF Mono, the widest of the families that the picture asks for, in units of the
font's size. https://dejavu-fonts.github.io
"""

from dataclasses import dataclass
from enum import Enum

MONOSPACED, BOLDER, USUAL, WIDEST = 0.62, 1.1, 0.64, 1.0
ASCENT, DESCENT = 0.93, 0.24
ELLIPSIS = "…"
TO = "\N{EN DASH}"  # between a least and a most
_ADVANCES = {
    **dict.fromkeys("ijlI'", 0.30),
    **dict.fromkeys(" .,:;|!/·", 0.34),
    **dict.fromkeys("-()[]", 0.40),
    **dict.fromkeys("ftr", 0.42),
    **dict.fromkeys("ABCDEFGHJKLNOPQRSTUVXYZw", 0.82),
    **dict.fromkeys("mMW%@", 1.0),
}


@dataclass(frozen=True, slots=True)
class Type:
    """How a kind of words is set; `tone` is its colour's name."""

    size: float
    tone: str = "ink"
    bold: bool = False
    mono: bool = False


class Face(Enum):
    """The kinds of words in the picture."""

    TITLE = Type(24, bold=True)
    HEADING = Type(15, bold=True)
    STRONG = Type(12, bold=True)
    BODY = Type(12)
    CODE = Type(11, mono=True)
    NOTE = Type(12, "muted")
    LABEL = Type(10.5, "muted")
    FAINT = Type(10, "muted", mono=True)

    @property
    def line(self) -> float:
        """The height of one line of it."""
        return self.value.size * (ASCENT + DESCENT)


def width(words: str, face: Face) -> float:
    """Return how wide the words may come out, in user units."""
    kind = face.value
    if kind.mono:
        return len(words) * MONOSPACED * kind.size
    return sum(map(_advance, words)) * kind.size * (BOLDER if kind.bold else 1)


def fitted(words: str, face: Face, room: float) -> str:
    """Return the words, cut with an ellipsis where they are wider than the room."""
    if width(words, face) <= room:
        return words
    kept = next((end for end in range(len(words), 0, -1) if width(words[:end] + ELLIPSIS, face) <= room), 0)
    return words[:kept] + ELLIPSIS


def _advance(character: str) -> float:
    return _ADVANCES.get(character, USUAL if character.isascii() else WIDEST)
