"""What a picture is made of: rectangles, words, lines and signs at places. They know no colour, only its name."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import Enum

from bedplate.picture.measure import ASCENT, Face, width
from bedplate.picture.signs import SIGN, Sign

WIDEST_STROKE = 2.5
HAIR = 0.01  # what the arithmetic of places may be off, in user units


class Anchor(Enum):
    """Which part of the words stands at their x."""

    START = 0.0
    MIDDLE = 0.5
    END = 1.0


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle that something fills."""

    x: float
    y: float
    width: float
    height: float

    def overlaps(self, other: "Box") -> bool:
        """Tell whether the two share more than an edge."""
        across = min(self.x + self.width, other.x + other.width) - max(self.x, other.x)
        down = min(self.y + self.height, other.y + other.height) - max(self.y, other.y)
        return min(across, down) > HAIR

    def lies_in(self, other: "Box") -> bool:
        """Tell whether all of it is inside the other."""
        return (
            other.x <= self.x
            and other.y <= self.y
            and self.x + self.width <= other.x + other.width
            and self.y + self.height <= other.y + other.height
        )


@dataclass(frozen=True, slots=True)
class Rect:
    """A rectangle; `title` is what a pointer over it tells."""

    x: float
    y: float
    width: float
    height: float
    role: str
    radius: float = 0
    title: str = ""


@dataclass(frozen=True, slots=True)
class Text:
    """Words on one line; `y` is their baseline."""

    x: float
    y: float
    words: str
    face: Face = Face.BODY
    anchor: Anchor = Anchor.START
    title: str = ""

    @property
    def box(self) -> Box:
        """The room that the words may take."""
        wide = width(self.words, self.face)
        top = self.y - ASCENT * self.face.value.size
        return Box(self.x - wide * self.anchor.value, top, wide, self.face.line)


@dataclass(frozen=True, slots=True)
class Line:
    """A straight line to the right or down."""

    x: float
    y: float
    dx: float
    dy: float
    role: str

    @property
    def box(self) -> Box:
        """The room that it takes, at the widest stroke."""
        half = WIDEST_STROKE / 2
        return Box(self.x - half, self.y - half, self.dx + 2 * half, self.dy + 2 * half)


@dataclass(frozen=True, slots=True)
class Icon:
    """A sign; x and y are the middle of its square."""

    x: float
    y: float
    sign: Sign
    role: str = "sign"
    title: str = ""

    @property
    def box(self) -> Box:
        """The square that the sign fills."""
        return Box(self.x - SIGN / 2, self.y - SIGN / 2, SIGN, SIGN)


Mark = Rect | Text | Line | Icon


@dataclass(frozen=True, slots=True)
class Part:
    """Marks that belong together, from 0, 0 to width and height."""

    width: float
    height: float
    marks: tuple[Mark, ...] = field(default=())

    def at(self, x: float, y: float) -> tuple[Mark, ...]:
        """Return the marks, moved."""
        return tuple(replace(mark, x=mark.x + x, y=mark.y + y) for mark in self.marks)


def stacked(parts: Iterable[Part], gap: float) -> Part:
    """Return the parts below one another."""
    marks: list[Mark] = []
    wide = below = 0.0
    for part in parts:
        marks += part.at(0, below)
        wide, below = max(wide, part.width), below + part.height + gap
    return Part(wide, max(below - gap, 0), tuple(marks))
