"""The picture of a fleet: one self-contained SVG from the plan. Pure: no file, clock, font or network access.

Text is measured with the widest common fonts: a layout without overlap has none in any common font.
"""

from bedplate.picture.page import picture

__all__ = ["picture"]
