"""The picture of a fleet: one self-contained SVG from the plan. Pure: no file, no clock, no font, no network.

Words are measured, never guessed: what is laid out without overlap is drawn without overlap in every common font.
"""

from bedplate.picture.page import picture

__all__ = ["picture"]
