"""From the tree to the fleet, with a fault for everything that the models refuse.

What they refuse is taken out, in the smallest part that can be, and the rest is asked for again: so all faults are
told in one pass, and the checks see whatever is left.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from types import MappingProxyType

from pydantic import ValidationError

from bedplate.checks.fault import Fault
from bedplate.checks.rules import fault
from bedplate.load.compose import MOST_FAULTS
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
    faults: list[Fault]
    fleet: Fleet | None = None
    dropped: set[str] = field(default_factory=set)
    thinned: set[str] = field(default_factory=set)

    @property
    def stand_ins(self) -> frozenset[str]:
        """The required parts that the file lacks, or has lost."""
        return frozenset(STAND_INS).difference(self.tree.names)

    @property
    def lost(self) -> frozenset[str]:
        """The keys at the top of the file under which something was taken out."""
        return frozenset(key.partition(".")[0] for key in self.dropped)

    @property
    def is_full(self) -> bool:
        """Whether more faults are told than anybody reads, so that what is left of the tree is of no use."""
        return len(self.faults) > MOST_FAULTS

    def drop(self, nodes: Iterable[Node]) -> None:
        """Take values out of the tree."""
        keys = {node.key for node in nodes}
        self.dropped |= keys
        self.tree = without(self.tree, keys)

    def tell(self, faults: Iterable[Fault]) -> None:
        """Add faults of keys about which nothing is told yet, and no more than anybody reads."""
        known = {told.key for told in self.faults}
        room = MOST_FAULTS + 1 - len(self.faults)
        self.faults.extend(islice((told for told in faults if told.key not in known), max(room, 0)))

    def refuse(self, error: ValidationError) -> None:
        """Take out what an error is about, and tell what does not merely follow from an earlier round."""
        sites = [
            (details, find(self.tree, details["loc"]))
            for details in error.errors(include_url=False, include_input=False)
        ]
        self.thinned |= {site.parent for _, site in sites}
        self.tell(shape_fault(details, site) for details, site in sites if not self._follows(details["type"], site))
        self.drop(site.node for _, site in sites)

    def _follows(self, kind: str, site: Site) -> bool:
        if kind == "too_short":
            return site.node.key in self.thinned
        return kind == "missing" and site.lacking in self.dropped


def model(tree: Node, known: Iterable[Fault]) -> Modelling:
    """Return what the models make of a tree; its fleet is None when nothing is left. `known` is told already."""
    modelling = Modelling(tree, list(known))
    if not isinstance(tree.value, dict):
        told = fault("E103", "", "a fleet file is a mapping", "start from examples/minimal.yaml")
        modelling.faults.append(tree.place.of(told))
        return modelling
    modelling.tell(_missing(tree))
    nulls = [node for node in tree.walk() if node.value is None]
    modelling.tell(node.place.of(fault("E104", node.key, "there is no value")) for node in nulls)
    modelling.drop(nulls)
    for _ in range(_ROUNDS):
        try:
            modelling.fleet = Fleet.model_validate({**STAND_INS, **modelling.tree.plain_mapping()})
        except ValidationError as error:
            modelling.refuse(error)
            if modelling.is_full:
                break
        else:
            break
    return modelling


def _missing(tree: Node) -> Iterator[Fault]:
    for name in STAND_INS:
        if name not in tree.names:
            yield tree.named.of(fault("E102", name, f"the file lacks the key {name}", f"add {name}"))
