"""A unit of systemd, carried out in a laboratory that has no systemd: its commands, in their order.

Knows what the units of bedplate say and no more.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LabUnit:
    """What a unit says: each key's values, in order."""

    values: Mapping[str, tuple[str, ...]]

    @property
    def env(self) -> dict[str, str]:
        """The variables that its commands see."""
        return dict(pair.split("=", 1) for line in self.values.get("Environment", ()) for pair in line.split())

    def commands(self, key: str) -> list[list[str]]:
        """Return the commands under a key, such as ExecStartPost."""
        return [line.split() for line in self.values.get(key, ())]


def read_unit(text: str) -> LabUnit:
    """Return the unit of a text."""
    values: dict[str, tuple[str, ...]] = {}
    for line in text.splitlines():
        key, equals, value = line.partition("=")
        if equals and not line.startswith("#"):
            values[key] = (*values.get(key, ()), value)
    return LabUnit(values)
