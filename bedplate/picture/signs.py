"""The signs of the picture: shapes that differ without colour, as SVG path data in a square around 0, 0."""

from collections.abc import Mapping
from enum import Enum

from bedplate.spec.group import Market

SIGN = 10.0  # the side of a sign's square


class Sign(Enum):
    """A shape; its value is path data."""

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
