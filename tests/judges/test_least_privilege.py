"""Tests that IAM roles grant the actions that they need, and no others."""

from typing import Any

import pytest
from ruamel.yaml import YAML

from tests.conftest import DATA
from tests.testlab.machines.judges import policies_of
from tests.testlab.rehearsal.graphs import Node

USES: list[dict[str, Any]] = YAML(typ="safe").load(DATA / "judges" / "uses.yaml")
ROLES = sorted({role for use in USES for role in use["roles"]})


def granted(graph: list[Node]) -> dict[str, list[dict[str, Any]]]:
    """Return the allowing statements of each role."""
    policies = {
        name.rpartition(".")[2]: policy for name, policy in policies_of(graph).items() if ".RolePolicy." in name
    }
    return {
        role: [statement for statement in policy["Statement"] if statement["Effect"] == "Allow"]
        for role, policy in policies.items()
    }


@pytest.mark.parametrize("role", ROLES)
def test_granted_actions_are_the_used_ones(role: str, graph: list[Node]) -> None:
    """A missing action and an unused one are both failures."""
    used = {action for use in USES if role in use["roles"] for action in use["actions"]}

    assert {action for statement in granted(graph)[role] for action in statement["Action"]} == used


def test_every_role_has_its_uses(graph: list[Node]) -> None:
    """Each role has tasks in the table, and each task has a role."""
    assert sorted(granted(graph)) == ROLES


def test_no_action_is_a_wildcard(graph: list[Node]) -> None:
    """All actions are written in full; a statement for all resources has a condition."""
    statements = [statement for of_role in granted(graph).values() for statement in of_role]

    assert not [action for statement in statements for action in statement["Action"] if "*" in action]
    assert not [item["Sid"] for item in statements if "*" in item["Resource"] and "Condition" not in item]
