"""A role may do what it is there to do, and nothing else."""

from typing import Any

import pytest
from ruamel.yaml import YAML

from tests.conftest import DATA
from tests.testlab.machines.judges import policies_of
from tests.testlab.rehearsal.graphs import Node

USES: list[dict[str, Any]] = YAML(typ="safe").load(DATA / "judges" / "uses.yaml")
ROLES = sorted({role for each in USES for role in each["roles"]})


def granted(graph: list[Node]) -> dict[str, list[dict[str, Any]]]:
    """Return the statements that allow something, by the role."""
    policies = {name.rpartition(".")[2]: held for name, held in policies_of(graph).items() if ".RolePolicy." in name}
    return {role: [one for one in held["Statement"] if one["Effect"] == "Allow"] for role, held in policies.items()}


@pytest.mark.parametrize("role", ROLES)
def test_what_is_granted_is_what_is_used(role: str, graph: list[Node]) -> None:
    """Granted over used is one: an action too many and one too few are both told."""
    used = {action for each in USES if role in each["roles"] for action in each["actions"]}

    assert {action for one in granted(graph)[role] for action in one["Action"]} == used


def test_every_role_has_its_uses(graph: list[Node]) -> None:
    """A role that is there for nothing is a door without a house."""
    assert sorted(granted(graph)) == ROLES


def test_a_star_is_no_action_and_seldom_a_resource(graph: list[Node]) -> None:
    """Every action is spelt out; what is allowed on `*` is told apart by a condition."""
    statements = [one for told in granted(graph).values() for one in told]

    assert not [action for one in statements for action in one["Action"] if "*" in action]
    assert not [one["Sid"] for one in statements if "*" in one["Resource"] and "Condition" not in one]
