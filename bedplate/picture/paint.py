"""From marks to SVG text, every word of it escaped."""

from collections.abc import Iterable
from html import escape

from bedplate.picture.marks import Anchor, Icon, Line, Mark, Part, Rect, Text
from bedplate.picture.theme import style_sheet

_ANCHORS = {Anchor.START: "", Anchor.MIDDLE: ' text-anchor="middle"', Anchor.END: ' text-anchor="end"'}


def painted(page: Part, title: str, description: str) -> str:
    """Return the page as an SVG document that needs nothing outside itself."""
    width, height = _number(page.width), _number(page.height)
    size = f'width="{width}" height="{height}"'
    spoken = 'role="img" aria-labelledby="title description"'
    return "\n".join(
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" {size} {spoken}>',
            f'<title id="title">{escape(title)}</title>',
            f'<desc id="description">{escape(description)}</desc>',
            f"<style>\n{style_sheet()}</style>",
            *_drawn(page.marks),
            "</svg>\n",
        )
    )


def _drawn(marks: Iterable[Mark]) -> Iterable[str]:
    return map(_mark, marks)


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
    """Return at most two decimals and no trailing zeros, so that equal pictures are equal bytes."""
    return f"{value:.2f}".rstrip("0").rstrip(".")
