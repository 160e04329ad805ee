"""Random fleets: those without a fault are accepted, and one planted flaw is never."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML

from bedplate.checks.fault import Level
from bedplate.checks.rules import RULES
from bedplate.checks.rules.file import FILE_RULES
from tests.support.fleets import fleets, told

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
