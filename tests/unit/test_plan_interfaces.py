"""The interfaces of every instance type, against the rules of AWS and against its own description of each type."""

import gzip
import json
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import moto.ec2
import pytest

from bedplate.catalog import InstanceFacts, load_catalog
from bedplate.plan.interfaces import PLAIN, Adapter, Interface, addresses_per_node, interfaces
from bedplate.spec.group import Fabric

TYPES = load_catalog().types
RECORDED = Path(moto.ec2.__file__).parent / "resources" / "instance_types.json.gz"
EFA, ENA, ONLY = Adapter.EFA, Adapter.ENA, Adapter.EFA_ONLY


@cache
def _cards() -> dict[str, list[dict[str, Any]]]:
    """Return the network cards of each type as AWS described them, which the layout was not made from."""
    types = json.loads(gzip.decompress(RECORDED.read_bytes()))
    return {name: one["NetworkInfo"]["NetworkCards"] for name, one in types.items()}


def _layout(name: str) -> tuple[Interface, ...]:
    return interfaces(TYPES[name], Fabric.EFA)


def _wrong(name: str) -> list[str]:
    """Return which of AWS's rules the layout of a type breaks."""
    layout, facts = _layout(name), TYPES[name]
    fabric = [one for one in layout if one.adapter in (EFA, ONLY)]
    places = Counter((one.card, one.device) for one in layout)
    on_card = Counter(one.card for one in layout)
    room = dict(enumerate(facts.interfaces_per_card)) or dict.fromkeys(range(max(facts.efa, 1)), 1)
    rules = {
        "the primary interface is first": (layout[0].card, layout[0].device) == (0, 0),
        "the primary interface bears IP": layout[0].adapter in (ENA, EFA),
        "one interface bears the only address": sum(one.adapter in (ENA, EFA) for one in layout) == 1,
        "no place is taken twice": max(places.values()) == 1,
        "no card holds more than it may": all(on_card[card] <= room.get(card, 0) for card in on_card),
        "places of a card are taken in order": all(one.device < on_card[one.card] for one in layout),
        "the type has as many EFAs as it may": len(fabric) == facts.efa,
        "one EFA a card": len({one.card for one in fabric}) == len(fabric),
    }
    return [rule for rule, is_kept in rules.items() if not is_kept]


def test_every_type_keeps_the_rules_of_aws() -> None:
    """Each type of the catalogue, on the fabric where it has one, breaks none of them."""
    broken = {name: wrong for name in TYPES if (wrong := _wrong(name))}

    assert broken == {}
    assert sum(TYPES[name].efa > 0 for name in TYPES) > 250


def test_every_interface_is_one_that_the_card_can_do() -> None:
    """AWS's own description of each type allows what is asked of each of its cards."""
    refused = {
        (name, one)
        for name in TYPES.keys() & _cards().keys()
        for one in _layout(name)
        if one.card >= len(_cards()[name])
        or one.adapter not in _cards()[name][one.card]["InterfaceTypes"]
        or one.device >= _cards()[name][one.card]["MaximumNetworkInterfaces"]
    }

    assert refused == set()


@pytest.mark.parametrize(
    ("name", "layout"),
    [
        ("g5.12xlarge", [(0, 0, EFA)]),
        ("g6e.24xlarge", [(0, 0, ENA), (0, 1, ONLY), (1, 0, ONLY)]),
        ("p4d.24xlarge", [(0, 0, ENA), (0, 1, ONLY), (1, 0, ONLY), (2, 0, ONLY), (3, 0, ONLY)]),
        ("p5.48xlarge", [(0, 0, ENA), (0, 1, ONLY), *((card, 0, ONLY) for card in range(1, 32))]),
        ("p6-b300.48xlarge", [(0, 0, ENA), *((card, 0, ONLY) for card in range(1, 17))]),
        ("hpc6id.32xlarge", [(0, 0, EFA), (1, 0, ONLY)]),
        ("m7i.4xlarge", [(0, 0, ENA)]),
    ],
)
def test_the_layouts_that_people_know(name: str, layout: list[tuple[int, int, Adapter]]) -> None:
    """Types of each form, as AWS's guide lays them out."""
    assert [(one.card, one.device, one.adapter) for one in _layout(name)] == layout


@pytest.mark.parametrize("name", ["p5.48xlarge", "m7i.4xlarge"])
def test_without_a_fabric_there_is_one_plain_interface(name: str) -> None:
    """Cards that nobody asked for are left alone."""
    assert interfaces(TYPES[name], None) == (PLAIN,)


def test_a_type_newer_than_the_catalogue_gets_one_interface_for_both() -> None:
    """It reaches the fabric, if by one card."""
    assert interfaces(None, Fabric.EFA) == (Interface(0, 0, EFA),)


@pytest.mark.parametrize("fabric", [None, Fabric.EFA])
def test_a_machine_takes_one_address(fabric: Fabric | None) -> None:
    """However many cards it has: an interface for the fabric alone takes none."""
    assert {addresses_per_node(facts, fabric) for facts in (*TYPES.values(), None)} == {1}


def test_more_efas_than_cards_are_never_asked_for() -> None:
    """Where the facts contradict each other, no card is asked for that nobody stated."""
    odd = InstanceFacts("z9.large", "x86_64", 2, 4096, interfaces_per_card=(2, 2), efa=4)

    assert {one.card for one in interfaces(odd, Fabric.EFA)} == {0, 1}
