"""Random fleets: a valid fleet has no errors, and a seeded defect is always reported."""

import json
import time
from collections.abc import Callable, Mapping
from datetime import date
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML

from bedplate.catalog import Catalog, RegionFacts
from bedplate.checks.catalogue import RULES, check_fleet
from bedplate.checks.diagnostics import Context, Declared
from bedplate.rules import Level
from bedplate.spec import Fleet
from tests.testlab.fleets.random import find_faults as faults_of
from tests.testlab.fleets.random import fleets

FLEETS = Path(__file__).parents[1] / "data" / "fleets"
DEFECTS: Mapping[str, Mapping[str, Any]] = YAML(typ="safe").load(FLEETS / "flaws.yaml")
# Rules that no value of a fleet violates: about the text, the lock, facts of the folder, ambiguous words, RSA keys.
ELSEWHERE = {
    *(code for code in RULES if code.startswith("E0")),
    "E110",
    "E231",
    "E232",
    "E233",
    "E235",
    "E236",
    "E290",
    "E291",
    "E349",
    "E419",
    "E421",
    "E422",
    "E510",
    "E517",
    "E518",
    "E801",
    "W644",
}
# `make fuzz` draws 10,000 of each kind, a normal run a few hundred.
VALID = max(100, settings().max_examples)
DEFECTIVE = max(2, settings().max_examples // len(DEFECTS))
Draw = Callable[[st.SearchStrategy[Any]], Any]


def defective_fleet(draw: Draw, code: str) -> dict[str, Any]:
    """Return a fleet that violates a rule."""
    fleet: dict[str, Any] = json.loads(json.dumps(draw(fleets())))
    wildcard: dict[str, str] = {}
    for path, value in DEFECTS[code].items():
        _put(draw, fleet, path.split("."), value, wildcard)
    return fleet


def _put(draw: Draw, mapping: dict[str, Any], path: list[str], value: object, wildcard: dict[str, str]) -> None:
    """Set the value of a path, or delete it for None; `*` is the same name in all paths of a defect."""
    name = path[0]
    if name == "*":
        name = wildcard.setdefault("*", draw(st.sampled_from(sorted(mapping))))
    if len(path) > 1:
        _put(draw, mapping.setdefault(name, {}), path[1:], value, wildcard)
    elif value is None:
        mapping.pop(name, None)
    else:
        mapping[name] = None if value == "null-value" else value


@settings(deadline=None, max_examples=VALID)
@given(fleets())
def test_a_valid_fleet_has_no_errors(fleet: dict[str, Any]) -> None:
    """A valid fleet may have warnings."""
    assert [fault for fault in faults_of(fleet) if fault.level is Level.ERROR] == []


@pytest.mark.parametrize("code", sorted(DEFECTS))
@settings(deadline=None, max_examples=DEFECTIVE)
@given(st.data())
def test_a_seeded_defect_is_reported(code: str, data: st.DataObject) -> None:
    """The fault has the level of its rule, and a fix."""
    fleet = defective_fleet(data.draw, code)

    faults = {fault.code: fault for fault in faults_of(fleet)}

    assert code in faults
    assert faults[code].level is RULES[code].level
    assert faults[code].fix


def test_every_rule_about_values_has_a_defect() -> None:
    """A new rule needs a defect in tests/data/fleets/flaws.yaml."""
    assert set(DEFECTS) | ELSEWHERE == set(RULES)
    assert ELSEWHERE.isdisjoint(DEFECTS)


NAMES = tuple(f"eu-west-{number}" for number in range(1, 1001))
CATALOG = Catalog({name: RegionFacts(name, (f"{name}a", f"{name}b", f"{name}c"), opt_in=False) for name in NAMES}, {})

LADDER = ("us-west-2", "us-east-1", "us-east-2")


def fleet_of(names: tuple[str, ...]) -> Fleet:
    """Return a fleet with these regions, each with three zones and a declared block, and as many sites."""
    blocks = iter(IPv4Network("10.0.0.0/8").subnets(new_prefix=20))
    regions = {name: {"zones": CATALOG.regions[name].zones, "block": str(next(blocks))} for name in names}
    sites = {
        f"site-{number}": {
            "lan": str(next(blocks)),
            "gateway": {"machine": "gate", "public": f"8.8.{number // 250}.{number % 250 + 1}", "asn": 100000 + number},
            "machines": {"gate": {"address": "10.0.0.1"}},
        }
        for number in range(len(names))
    }
    for site in sites.values():
        lan = IPv4Network(str(site["lan"]))
        site["machines"] = {"gate": {"address": str(lan.network_address + 1)}}
    return Fleet.model_validate(
        {
            "version": 1,
            "name": "big",
            "account": "111122223333",
            "owner": "infra",
            "domain": "big.internal",
            "network": {"supernet": "10.0.0.0/8"},
            "regions": {names[0]: regions[names[0]] | {"home": True}, **{n: regions[n] for n in names[1:]}},
            "sites": sites,
        }
    )


def test_a_thousand_regions_and_sites_are_checked_in_seconds() -> None:
    """The limit is CPU time, so a busy machine does not matter."""
    fleet = fleet_of(NAMES)
    context = Context(fleet, CATALOG, Declared(fleet.model_dump(exclude_unset=True)), date(2026, 11, 21))
    start = time.process_time()

    faults = list(check_fleet(context))

    assert [fault for fault in faults if fault.level is Level.ERROR] == []
    assert time.process_time() - start < 2.0


def test_two_hundred_groups_of_six_rungs_are_checked_in_seconds() -> None:
    """Reading, validation and all checks take less than 2 s; the seeded defect in the last group is reported."""
    groups = {f"group-{number}": group_of() for number in range(200)}
    groups["group-199"]["types"] = ["g6.4xlarge", "g6.12xlarge"]
    regions = {name: {"zones": [f"{name}{letter}" for letter in "abc"]} for name in LADDER}
    fleet = {
        "version": 1,
        "name": "wide",
        "account": "111122223333",
        "owner": "infra",
        "domain": "wide.internal",
        "network": {"supernet": "10.64.0.0/10"},
        "regions": {**regions, "us-west-2": {**regions["us-west-2"], "home": True}},
        "groups": groups,
    }
    start = time.process_time()

    faults = faults_of(fleet)

    errors = [(fault.code, fault.key) for fault in faults if fault.level is Level.ERROR]
    assert errors == [("E322", "groups.group-199.types.1")]
    assert time.process_time() - start < 2.0


def group_of() -> dict[str, Any]:
    """Return a group with six rungs, small enough for two hundred of them."""
    return {
        "use": "ssh",
        "types": ["g6.4xlarge", "g5.4xlarge"],
        "nodes": {"min": 1, "max": 64},
        "expires": "permanent",
        "ladder": [{"region": name, "market": market} for market in ("on-demand", "spot") for name in LADDER],
    }
