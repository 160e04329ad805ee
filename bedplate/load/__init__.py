"""Reads the fleet file: safely, with the position of every key, and with all faults in one pass.

All access to the fleet file goes through this package. It writes nothing, starts no process and does not call AWS.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bedplate.load.fleet import FleetFaults, Loaded, examine, in_order, load_fleet

__all__ = ["FleetFaults", "Loaded", "examine", "in_order", "load_fleet"]


def __getattr__(name: str) -> object:
    # Importing the models takes a quarter of a second, and commands that only need names do without them.
    if name not in __all__:
        raise AttributeError(name)
    return getattr(import_module("bedplate.load.fleet"), name)
