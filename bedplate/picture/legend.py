"""What the signs mean: those that the picture holds, and no others."""

from bedplate.picture.flow import flowing
from bedplate.picture.marks import Icon, Mark, Part
from bedplate.picture.measure import Face
from bedplate.picture.signs import Sign
from bedplate.picture.table import Shape, Word

MEANINGS = {
    Sign.DISC: "on demand",
    Sign.RING: "spot",
    Sign.SQUARE: "reservation",
    Sign.DIAMOND: "capacity block",
    Sign.HOUSE: "home region",
    Sign.FILES: "file system",
    Sign.BUCKET: "bucket",
    Sign.NAMES: "a site's own names",
    Sign.LAPTOP: "laptop gateway",
    Sign.TUNNELS: "two tunnels",
    Sign.GATEWAY: "site gateway",
}


def legend(marks: tuple[Mark, ...], room: float) -> Part:
    """Return the meaning of each sign among the marks."""
    used = {mark.sign: mark.role for mark in marks if isinstance(mark, Icon)}
    cells = [(Shape(sign, used[sign]), Word(words, Face.NOTE)) for sign, words in MEANINGS.items() if sign in used]
    return flowing(cells, room)
