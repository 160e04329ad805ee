"""The colours, for light and for dark surroundings, and the style sheet that is made of them.

The hues are Okabe and Ito's, which stay apart for every kind of colour vision; each is repeated by a shape or a word.
Light is the plain rule and dark the exception, so a viewer that knows no media queries shows light, whole.
https://jfly.uni-koeln.de/color/
"""

from collections.abc import Iterator

from bedplate.picture.marks import WIDEST_STROKE
from bedplate.picture.measure import Face

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

# role: its declarations, with {colour} in place of a colour
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
    """Return the picture's style sheet."""
    dark = "".join(_rules(1))
    return "".join((*_faces(), *_rules(0), f"@media (prefers-color-scheme:dark){{{dark}}}"))


def _rules(scheme: int) -> Iterator[str]:
    """Yield the rules that hold a colour, in the light (0) or the dark (1) scheme."""
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
