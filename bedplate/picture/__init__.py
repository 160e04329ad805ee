"""The picture of a fleet: one self-contained SVG from the plan. Pure: no clock, font or network access."""

from bedplate.picture.page import picture

__all__ = ["picture"]
