"""From the tree to the fleet, with a fault for everything that the models refuse.

What they refuse is taken out, in the smallest part that can be, and the rest is asked for again: so all faults are
told in one pass, and the checks see whatever is left.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from pydantic import ValidationError

from bedplate.checks.fault import Fault
from bedplate.checks.rules import fault
from bedplate.load.node import Node
from bedplate.load.shape import Site, find, shape_fault
from bedplate.load.trim import without
from bedplate.spec import Fleet

# No key lies deeper than this in the models, and each round takes out one level.
_ROUNDS = 12

# What stands in for a required part that was refused or is missing, so that all the rest can still be checked.
STAND_INS: Mapping[str, object] = MappingProxyType(
    {
        "version": 1,
        "name": "stand-in",
        "account": "000000000000",
        "owner": "stand-in",
        "domain": "stand.in",
        "network": {"supernet": "10.0.0.0/8"},
        "regions": {"us-east-1": {"home": True, "zones": ("us-east-1a",)}},
    }
)


@dataclass(slots=True)
class Modelling:
    """A tree on its way to a fleet; `dropped` are the keys of what was taken out, `thinned` of what held them."""

    tree: Node
    most: int
    faults: list[Fault] = field(default_factory=list)
    dropped: set[str] = field(default_factory=set)
    thinned: set[str] = field(default_factory=set)

    @property
    def stand_ins(self) -> frozenset[str]:
        """The required parts that the file lacks, or has lost."""
        return frozenset(STAND_INS).difference(self.tree.names)

    def fleet(self) -> Fleet | None:
        """Return as much of a fleet as the models accept; None when nothing is left of it."""
        if not isinstance(self.tree.value, Mapping):
            told = fault("E103", "", "a fleet file is a mapping", "start from examples/minimal.yaml")
            self.faults.append(self.tree.place.of(told))
            return None
        self.faults.extend(self._missing())
        for _ in range(_ROUNDS):
            try:
                return Fleet.model_validate({**STAND_INS, **self.tree.plain_mapping()})
            except ValidationError as error:
                self._drop(error)
        return None

    def _missing(self) -> Iterator[Fault]:
        for name in STAND_INS:
            if name in self.stand_ins and name not in self.dropped:
                yield self.tree.named.of(fault("E102", name, f"the file lacks the key {name}", f"add {name}"))

    def _drop(self, error: ValidationError) -> None:
        """Take out what the error is about, and tell what does not merely follow from an earlier round."""
        dropped = set()
        for details in error.errors(include_url=False, include_input=False):
            site = find(self.tree, details["loc"])
            if len(self.faults) < self.most and not self._follows(details["type"], site):
                self.faults.append(shape_fault(details, site))
            dropped.add(site.node.key)
            self.thinned.add(site.parent)
        self.dropped |= dropped
        self.tree = without(self.tree, dropped)

    def _follows(self, kind: str, site: Site) -> bool:
        if kind == "too_short":
            return site.node.key in self.thinned
        return kind == "missing" and site.lacking in self.dropped
