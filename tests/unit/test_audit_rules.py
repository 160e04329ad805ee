"""Every rule of what stacks hold has resources that break it and twins of them that break none."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from bedplate.audit.rules import STACK_RULES
from tests.support.audited import codes, faults, resource

Case = list[dict[str, Any]]
TABLE = Path(__file__).parents[1] / "data" / "audit" / "rules.yaml"
EXAMPLES: dict[str, dict[str, list[Case]]] = YAML(typ="safe").load(TABLE)
# Judged by a table of their own (test_audit_exposure).
ELSEWHERE = {"S101", "S102", "S103"}


def cases(kind: str) -> Iterator[Any]:
    """Yield each case of a kind with its rule."""
    for code, example in EXAMPLES.items():
        for index, case in enumerate(example[kind]):
            yield pytest.param(code, case, id=f"{code}-{index}")


def graph(case: Case) -> list[dict[str, Any]]:
    """Return the resources of a case as a graph lists them."""
    return [_resource(index, dict(each)) for index, each in enumerate(case)]


def _resource(index: int, told: dict[str, Any]) -> dict[str, Any]:
    more: dict[str, Any] = told.pop("+", {})
    ((token, inputs),) = told.items()
    return resource(token, f"r{index}", **inputs) | more


@pytest.mark.parametrize(("code", "case"), list(cases("bad")))
def test_a_planted_defect_is_found(code: str, case: Case) -> None:
    """At a resource of the graph, with what to do."""
    found = [told for told in faults(graph(case)) if told.code == code]

    assert found
    assert all(told.urn in {each["urn"] for each in graph(case)} and told.message and told.fix for told in found)


@pytest.mark.parametrize(("code", "case"), list(cases("good")))
def test_its_good_twin_passes(code: str, case: Case) -> None:
    """Not only this rule: all of them."""
    assert codes(graph(case)) == set()


def test_every_rule_has_its_example() -> None:
    """A rule that nothing was seen to break is no rule."""
    assert set(EXAMPLES) | ELSEWHERE == set(STACK_RULES)
