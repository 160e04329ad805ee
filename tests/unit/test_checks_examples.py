"""Every rule of the catalogue has an example that breaks it and one beside it that does not."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from bedplate.catalog import load_catalog
from bedplate.checks.fault import Fault, Level
from bedplate.checks.rules import RULES
from bedplate.load import examine
from bedplate.plan.fault import PLAN_RULES

FLEETS = Path(__file__).parents[1] / "data" / "fleets"
BASE = (FLEETS / "base.yaml").read_text(encoding="utf-8")
Edit = Mapping[str, str]
FaultsOf = Callable[[Edit], tuple[Fault, ...]]

EXAMPLES: dict[str, dict[str, Any]] = {
    code: example
    for path in sorted((FLEETS / "rules").glob("*.yaml"))
    for code, example in YAML(typ="safe").load(path).items()
}
# Rules whose examples are no edit of a text: files that cannot be opened or are too long (test_load_source,
# test_load_limits), strong and weak RSA keys (test_spec_sshkey), what the plan refuses (test_plan_faults), and
# a lock that is none (test_cli_check), or that lacks an image (test_checks_image).
_FILES = {"E001", "E002", "E003", "E004", "E005", "E006", "E012", "E013", "E020"}
ELSEWHERE = {*_FILES, "E290", "E349", "E510", *PLAN_RULES}


def edited(edit: Edit) -> str:
    """Return the base fleet after the edit, which must change something."""
    text = BASE
    for old, new in edit.items():
        assert old in text
        text = text.replace(old, new) if old else new
    return text


@pytest.fixture
def faults_of(tmp_path: Path) -> FaultsOf:
    """Give the question what is wrong with an edit of the base fleet."""

    def faults(edit: Edit) -> tuple[Fault, ...]:
        path = tmp_path / "fleet.yaml"
        path.write_text(edited(edit), encoding="utf-8")
        return examine(path, load_catalog())

    return faults


@pytest.mark.parametrize("code", EXAMPLES)
def test_the_edit_that_breaks_a_rule_is_told_at_its_key(code: str, faults_of: FaultsOf) -> None:
    """The planted defect is found, at the key where it stands, in words that name it."""
    example = EXAMPLES[code]

    found = {told.key: told for told in faults_of(example["bad"]) if told.code == code}

    assert example["key"] in found
    assert example["says"] in found[example["key"]].message
    assert found[example["key"]].level is RULES[code].level
    assert found[example["key"]].fix


@pytest.mark.parametrize("code", [code for code in EXAMPLES if "good" in EXAMPLES[code]])
def test_the_nearest_right_edit_is_accepted(code: str, faults_of: FaultsOf) -> None:
    """The good twin of a defect passes every check."""
    found = faults_of(EXAMPLES[code]["good"])

    assert [told for told in found if told.level is Level.ERROR or told.code == code] == []


def test_the_base_fleet_has_no_fault(faults_of: FaultsOf) -> None:
    """What the examples are edits of is itself the good twin of every rule."""
    assert faults_of({"version: 1": "version: 1"}) == ()


def test_every_rule_has_an_example() -> None:
    """A rule that nothing was seen to break, or that is not in the catalogue, is no rule."""
    assert set(EXAMPLES) | ELSEWHERE == set(RULES)
    assert set(EXAMPLES).isdisjoint(ELSEWHERE)
