"""SVG output: text widths, icons, shapes, the style sheet, and the document.

Text is measured with the advances of DejaVu Sans and SF Mono, the widest fonts of the style sheet's font families, in
units of the font size (https://dejavu-fonts.github.io). So text never exceeds its box in a viewer's font.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from html import escape

from bedplate.spec.groups import Market

MONOSPACED, BOLDER, USUAL, WIDEST = 0.62, 1.1, 0.64, 1.0
ASCENT, DESCENT = 0.93, 0.24
ELLIPSIS = "…"
TO = "\N{EN DASH}"  # between a minimum and a maximum
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
    """The typography of a face; `tone` is the name of its colour."""

    size: float
    tone: str = "ink"
    bold: bool = False
    mono: bool = False


class Face(Enum):
    """The text styles of the picture."""

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
        """The height of one line."""
        return self.value.size * (ASCENT + DESCENT)


def width(words: str, face: Face) -> float:
    """Return the maximum width of a text, in user units."""
    kind = face.value
    if kind.mono:
        return len(words) * MONOSPACED * kind.size
    return sum(map(_advance, words)) * kind.size * (BOLDER if kind.bold else 1)


def fitted(words: str, face: Face, room: float) -> str:
    """Return the text, cut with an ellipsis if it is wider than `room`."""
    if width(words, face) <= room:
        return words
    kept = next((end for end in range(len(words), 0, -1) if width(words[:end] + ELLIPSIS, face) <= room), 0)
    return words[:kept] + ELLIPSIS


def _advance(character: str) -> float:
    return _ADVANCES.get(character, USUAL if character.isascii() else WIDEST)


SIGN = 10.0  # the side of an icon's square


class Sign(Enum):
    """An icon; its value is SVG path data."""

    DISC = "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0z"
    RING = "M-4.5 0a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0-9 0zM-2.8 0a2.8 2.8 0 1 1 5.6 0a2.8 2.8 0 1 1-5.6 0z"
    SQUARE = "M-3.8-3.8h7.6v7.6h-7.6z"
    DIAMOND = "M0-5L5 0L0 5L-5 0z"
    HOUSE = "M-5 0L0-5L5 0H3.4V4.6H1.2V1.4H-1.2V4.6H-3.4V0z"
    FILES = "M-5-3.8h4l1.2 1.4h4.8v6.4h-10z"
    BUCKET = "M-4.8-4.4h9.6l-1.5 9h-6.6zM-3.2-3v1.2h6.4v-1.2z"
    LAPTOP = "M-3.8-4h7.6v5.6h-7.6zM-2.6-2.9v3.3h5.2v-3.3zM-5 2.6h10v1.6h-10z"
    TUNNELS = "M-5-2.8h10v1.6h-10zM-5 1.2h10v1.6h-10z"
    GATEWAY = "M-5-4.2h10v3.6h-10zM-5 .6h10v3.6h-10zM1.6-3h2v1.2h-2zM1.6 1.8h2v1.2h-2z"
    NAMES = "M-5-4h6l4 4l-4 4h-6zM-3.4-.8v1.6h1.6v-1.6z"
    SWATCH = "M-4-4h8v8h-8z"


MARKETS: Mapping[Market, Sign] = {
    Market.ON_DEMAND: Sign.DISC,
    Market.SPOT: Sign.RING,
    Market.RESERVATION: Sign.SQUARE,
    Market.CAPACITY_BLOCK: Sign.DIAMOND,
}


WIDEST_STROKE = 2.5
HAIR = 0.01  # tolerance for rounding, in user units


class Anchor(Enum):
    """The part of a text that is at its x coordinate."""

    START = 0.0
    MIDDLE = 0.5
    END = 1.0


@dataclass(frozen=True, slots=True)
class Box:
    """A bounding box."""

    x: float
    y: float
    width: float
    height: float

    def overlaps(self, other: "Box") -> bool:
        """Return whether two boxes share more than an edge."""
        across = min(self.x + self.width, other.x + other.width) - max(self.x, other.x)
        down = min(self.y + self.height, other.y + other.height) - max(self.y, other.y)
        return min(across, down) > HAIR

    def lies_in(self, other: "Box") -> bool:
        """Return whether the box is inside another."""
        return (
            other.x <= self.x
            and other.y <= self.y
            and self.x + self.width <= other.x + other.width
            and self.y + self.height <= other.y + other.height
        )


@dataclass(frozen=True, slots=True)
class Rect:
    """A rectangle; `title` is its tooltip."""

    x: float
    y: float
    width: float
    height: float
    role: str
    radius: float = 0
    title: str = ""


@dataclass(frozen=True, slots=True)
class Text:
    """One line of text; `y` is the baseline."""

    x: float
    y: float
    words: str
    face: Face = Face.BODY
    anchor: Anchor = Anchor.START
    title: str = ""

    @property
    def box(self) -> Box:
        """The bounding box at the maximum width."""
        wide = width(self.words, self.face)
        top = self.y - ASCENT * self.face.value.size
        return Box(self.x - wide * self.anchor.value, top, wide, self.face.line)


@dataclass(frozen=True, slots=True)
class Line:
    """A horizontal or vertical line, to the right or down."""

    x: float
    y: float
    dx: float
    dy: float
    role: str

    @property
    def box(self) -> Box:
        """The bounding box at the widest stroke."""
        half = WIDEST_STROKE / 2
        return Box(self.x - half, self.y - half, self.dx + 2 * half, self.dy + 2 * half)


@dataclass(frozen=True, slots=True)
class Icon:
    """An icon; x and y are the centre of its square."""

    x: float
    y: float
    sign: Sign
    role: str = "sign"
    title: str = ""

    @property
    def box(self) -> Box:
        """The bounding box."""
        return Box(self.x - SIGN / 2, self.y - SIGN / 2, SIGN, SIGN)


Mark = Rect | Text | Line | Icon


@dataclass(frozen=True, slots=True)
class Part:
    """A group of marks, from 0, 0 to width and height."""

    width: float
    height: float
    marks: tuple[Mark, ...] = field(default=())

    def at(self, x: float, y: float) -> tuple[Mark, ...]:
        """Return the marks, moved by x and y."""
        return tuple(replace(mark, x=mark.x + x, y=mark.y + y) for mark in self.marks)


def stacked(parts: Iterable[Part], gap: float) -> Part:
    """Return the parts, one below the other."""
    marks: list[Mark] = []
    wide = below = 0.0
    for part in parts:
        marks += part.at(0, below)
        wide, below = max(wide, part.width), below + part.height + gap
    return Part(wide, max(below - gap, 0), tuple(marks))


SANS = 'system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif'
MONO = 'ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace'

# name: light, dark
COLOURS = {
    "page": ("#f6f8fa", "#0d1117"),
    "surface": ("#ffffff", "#161b22"),
    "border": ("#d1d9e0", "#3d444d"),
    "ink": ("#1f2328", "#f0f6fc"),
    "muted": ("#59636e", "#9198a1"),
    "blue": ("#0072b2", "#56b4e9"),
    "orange": ("#cc7a00", "#e69f00"),
    "green": ("#008a64", "#2fbf95"),
    "purple": ("#b0568a", "#dc94bd"),
    "vermilion": ("#c75300", "#f0803c"),
}

# role: its CSS declarations, with {colour} for a colour
ROLES = {
    "page": "fill:{page}",
    "card": "fill:{surface};stroke:{border}",
    "rule": "stroke:{border}",
    "free": "fill:none;stroke:{border};stroke-dasharray:3 3",
    "sign": "fill:{ink}",
    "quiet": "fill:{muted}",
    "door": "fill:{vermilion}",
    "region": "fill:{blue};fill-opacity:.14;stroke:{blue}",
    "nodes": "fill:{blue};fill-opacity:.14;stroke:{blue}",
    "edge": "fill:{orange}",
    "pods": "fill:{green};fill-opacity:.14;stroke:{green}",
    "services": "fill:{purple};fill-opacity:.3;stroke:{purple}",
    "laptops": "fill:{vermilion}",
    "site": "fill:{muted};fill-opacity:.3;stroke:{muted}",
    "held": "fill:{muted};fill-opacity:.08;stroke:{muted};stroke-dasharray:1 2",
    "mesh": f"stroke:{{blue}};stroke-width:{WIDEST_STROKE}",
    "hub": "fill:{blue};stroke:{surface};stroke-width:1.5",
    "tunnel": "stroke:{vermilion};stroke-width:1.25",
    "end": "fill:{vermilion};stroke:{surface};stroke-width:1.5",
}


def style_sheet() -> str:
    """Return the style sheet."""
    dark = "".join(_rules(1))
    return "".join((*_faces(), *_rules(0), f"@media (prefers-color-scheme:dark){{{dark}}}"))


def _rules(scheme: int) -> Iterator[str]:
    """Yield the CSS rules with colours, for the light (0) or the dark (1) scheme."""
    colours = {name: pair[scheme] for name, pair in COLOURS.items()}
    yield from (f".{role}{{{rule.format(**colours)}}}\n" for role, rule in ROLES.items())
    yield from (f".{tone}{{fill:{colours[tone]}}}\n" for tone in ("ink", "muted"))


def _faces() -> Iterator[str]:
    yield f"text{{font-family:{SANS};font-variant-numeric:tabular-nums}}\n"
    for face in Face:
        kind = face.value
        weight = ";font-weight:600" if kind.bold else ""
        family = f";font-family:{MONO}" if kind.mono else ""
        yield f".{face.name.lower()}{{font-size:{kind.size:g}px{weight}{family}}}\n"


_ANCHORS = {Anchor.START: "", Anchor.MIDDLE: ' text-anchor="middle"', Anchor.END: ' text-anchor="end"'}


def painted(page: Part, title: str, description: str) -> str:
    """Return the page as a self-contained SVG document."""
    width, height = _number(page.width), _number(page.height)
    size = f'width="{width}" height="{height}"'
    accessible = 'role="img" aria-labelledby="title description"'
    return "\n".join(
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" {size} {accessible}>',
            f'<title id="title">{escape(title)}</title>',
            f'<desc id="description">{escape(description)}</desc>',
            f"<style>\n{style_sheet()}</style>",
            *map(_mark, page.marks),
            "</svg>\n",
        )
    )


def _mark(mark: Mark) -> str:
    match mark:
        case Rect():
            return _rect(mark)
        case Text():
            return _text(mark)
        case Line():
            return _line(mark)
        case Icon():
            return _icon(mark)


def _rect(rect: Rect) -> str:
    radius = f' rx="{_number(rect.radius)}"' if rect.radius else ""
    size = f'width="{_number(rect.width)}" height="{_number(rect.height)}"'
    start = f'<rect x="{_number(rect.x)}" y="{_number(rect.y)}" {size}{radius} class="{rect.role}"'
    return _closed("rect", start, rect.title)


def _text(text: Text) -> str:
    kind = f"{text.face.name.lower()} {text.face.value.tone}"
    start = f'<text x="{_number(text.x)}" y="{_number(text.y)}"{_ANCHORS[text.anchor]} class="{kind}">'
    return f"{start}{_title(text.title)}{escape(text.words)}</text>"


def _line(line: Line) -> str:
    ends = (line.x, line.y, line.x + line.dx, line.y + line.dy)
    x1, y1, x2, y2 = map(_number, ends)
    return f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" class="{line.role}"/>'


def _icon(icon: Icon) -> str:
    place = f"translate({_number(icon.x)} {_number(icon.y)})"
    start = f'<path transform="{place}" d="{icon.sign.value}" fill-rule="evenodd" class="{icon.role}"'
    return _closed("path", start, icon.title)


def _closed(tag: str, start: str, title: str) -> str:
    return f"{start}>{_title(title)}</{tag}>" if title else f"{start}/>"


def _title(words: str) -> str:
    return f"<title>{escape(words)}</title>" if words else ""


def _number(value: float) -> str:
    """Return a number with at most two decimals and no trailing zeros."""
    return f"{value:.2f}".rstrip("0").rstrip(".")
