"""Random fleets: those without a fault are accepted, and one planted flaw is never."""

import json
import time
from collections.abc import Callable, Mapping
from datetime import date
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML

from bedplate.catalog import Catalog, RegionFacts
from bedplate.checks.catalogue import RULES, check_fleet
from bedplate.checks.context import Context, Declared
from bedplate.checks.diagnostics import Level
from bedplate.checks.file import FILE_RULES
from bedplate.spec import Fleet
from tests.testlab.fleets.random import fleets, told

FLEETS = Path(__file__).parents[1] / "data" / "fleets"
FLAWS: Mapping[str, Mapping[str, Any]] = YAML(typ="safe").load(FLEETS / "flaws.yaml")
# Rules that no value of a fleet breaks: those of the text, of the lock, of words that JSON lacks, of weak RSA keys.
ELSEWHERE = {
    *(rule.code for rule in FILE_RULES),
    "E110",
    "E231",
    "E232",
    "E233",
    "E235",
    "E236",
    "E290",
    "E349",
    "E510",
    "E517",
    "E518",
}
# `make fuzz` draws 10,000 of each kind; else a few hundred do.
VALID, FLAWED = (max(few, settings().max_examples) for few in (100, 400))
Draw = Callable[[st.SearchStrategy[Any]], Any]


@st.composite
def flawed(draw: Draw) -> tuple[str, dict[str, Any]]:
    """Return the code of a rule, and a fleet that breaks it."""
    code = draw(st.sampled_from(sorted(FLAWS)))
    fleet = json.loads(json.dumps(draw(fleets())))
    chosen: dict[str, str] = {}
    for path, value in FLAWS[code].items():
        _put(draw, fleet, path.split("."), value, chosen)
    return code, fleet


def _put(draw: Draw, below: dict[str, Any], path: list[str], value: object, chosen: dict[str, str]) -> None:
    """Put a value where a path leads; None takes away what is there. One `*` is the same in all paths of a flaw."""
    name = path[0]
    if name == "*":
        name = chosen.setdefault("*", draw(st.sampled_from(sorted(below))))
    if len(path) > 1:
        _put(draw, below.setdefault(name, {}), path[1:], value, chosen)
    elif value is None:
        below.pop(name, None)
    else:
        below[name] = None if value == "null-value" else value


@settings(deadline=None, max_examples=VALID)
@given(fleets())
def test_a_fleet_without_a_flaw_is_accepted(fleet: dict[str, Any]) -> None:
    """No error, whatever keys it has; warnings are for people to judge."""
    assert [one for one in told(fleet) if one.level is Level.ERROR] == []


@settings(deadline=None, max_examples=FLAWED)
@given(flawed())
def test_a_planted_flaw_is_told(case: tuple[str, dict[str, Any]]) -> None:
    """By its own rule, in a fleet that had none, and with a way out."""
    code, fleet = case

    found = {one.code: one for one in told(fleet)}

    assert code in found
    assert found[code].level is RULES[code].level
    assert found[code].fix


def test_every_rule_about_values_has_its_flaw() -> None:
    """A rule without one would never be tried beside the rest of a fleet."""
    assert set(FLAWS) | ELSEWHERE == set(RULES)
    assert ELSEWHERE.isdisjoint(FLAWS)


NAMES = tuple(f"eu-west-{number}" for number in range(1, 1001))
CATALOG = Catalog({name: RegionFacts(name, (f"{name}a", f"{name}b", f"{name}c"), opt_in=False) for name in NAMES}, {})

LADDER = ("us-west-2", "us-east-1", "us-east-2")


def fleet_of(names: tuple[str, ...]) -> Fleet:
    """Return a fleet of these regions, each with three zones and a declared block, and a site for each."""
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
    """All good, and found so; the time is the processor's, so that a busy machine does not count."""
    fleet = fleet_of(NAMES)
    context = Context(fleet, CATALOG, Declared(fleet.model_dump(exclude_unset=True)), date(2026, 11, 21))
    start = time.process_time()

    found = list(check_fleet(context))

    assert found == []
    assert time.process_time() - start < 2.0


def test_two_hundred_groups_of_six_rungs_are_checked_in_seconds() -> None:
    """Reading, the models and every rule, from a file; the planted flaw in the last group is found."""
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

    found = told(fleet)

    assert [(one.code, one.key) for one in found] == [("E322", "groups.group-199.types.1")]
    assert time.process_time() - start < 2.0


def group_of() -> dict[str, Any]:
    """Return a group with six rungs, small enough for two hundred of it to fit side by side."""
    return {
        "use": "ssh",
        "types": ["g6.4xlarge", "g5.4xlarge"],
        "nodes": {"min": 0, "max": 64},
        "ladder": [{"region": name, "market": market} for market in ("on-demand", "spot") for name in LADDER],
    }
