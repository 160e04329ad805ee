"""Rules that only a plan and its lock can violate, and the error that contains their faults."""

from collections.abc import Iterable
from functools import partial

from bedplate.errors import InputError
from bedplate.rules import Fault, Rule

SUPERNET_EXHAUSTED = Rule("E230", "Every allocated block is in the supernet.", "declare a larger supernet")
RENUMBERS_BLOCK = Rule("E231", "The addresses of deployed resources cannot change.", "keep the recorded size")
TOUCHES_RECORDED_BLOCK = Rule("E232", "Two places cannot share addresses.", "declare another block")
OUTSIDE_SUPERNET = Rule("E233", "Every recorded block is in the supernet.", "keep the recorded supernet")
SUBNETS_DO_NOT_FIT = Rule("E234", "Each zone needs an edge and a node subnet.", "declare a larger block")
ZONE_SLOTS_EXHAUSTED = Rule("E235", "A region has addresses for seven zones.", "use zones that it had before")
TUNNELS_EXHAUSTED = Rule("E236", "Each tunnel needs its own /30.", "declare fewer sites or regions")
_rule = partial(Rule, section="people")
IDS_EXHAUSTED = _rule("E517", "bedplate never reuses an id.", "use names that the lock has")
NAME_RECORDED = _rule("E518", "Files on nodes belong to the previous owner of the name.", "use another name")
NAME_IN_CLUSTER = _rule(
    "E519",
    "It is the person's account and namespace in Kubernetes, with - for _ and no - at the ends.",
    "choose another name",
)


class PlanFaults(InputError):
    """Faults of a fleet file against its lock or its supernet; nothing is allocated."""

    def __init__(self, faults: Iterable[Fault]) -> None:
        self.faults = tuple(dict.fromkeys(faults))
        first, more = self.faults[0], len(self.faults) - 1
        also = f" (and {more} more)" if more else ""
        super().__init__(f"{first.code} {first.message}{also}", where=first.key, fix=first.fix)
