"""The fleet file as it is read: safely, with the position of every key, and with all of its faults in one pass.

The one door to the file. Nothing here writes, starts a process or speaks to AWS.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bedplate.load.fleet import FleetFaults, Loaded, examine, load_fleet

__all__ = ["FleetFaults", "Loaded", "examine", "load_fleet"]


def __getattr__(name: str) -> object:
    # The models of a whole fleet take a quarter of a second to load, and who asks for a name alone needs none.
    if name not in __all__:
        raise AttributeError(name)
    return getattr(import_module("bedplate.load.fleet"), name)
