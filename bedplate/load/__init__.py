"""The fleet file as it is read: safely, with the position of every key, and with all of its faults in one pass.

The one door to the file. Nothing here writes, starts a process or speaks to AWS.
"""

from bedplate.load.fleet import FleetFaults, Loaded, examine, load_fleet

__all__ = ["FleetFaults", "Loaded", "examine", "load_fleet"]
