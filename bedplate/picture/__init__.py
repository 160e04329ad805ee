"""The picture of a fleet: one self-contained SVG from the plan. Pure: no clock, font or network access."""
