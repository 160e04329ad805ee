"""The role `guard` on a real machine: a site's gateway is under guard before it has a tunnel."""

import pytest

from tests.support.declared import EXAMPLES
from tests.support.stand.node import Node
from tests.support.stand.operator import Operator
from tests.support.stand.stand import Stand

NAME = "gate.cellar"
ROLES = ("--role", "guard")


@pytest.fixture(scope="module")
def operator(stand: Stand) -> Operator:
    """Give the operator of the lab."""
    return Operator(stand, EXAMPLES / "lab.yaml")


@pytest.fixture(scope="module")
def node(stand: Stand, operator: Operator) -> Node:
    """Give the site's gateway, with the role in force."""
    booted = stand.boot(NAME, "192.168.40.1")
    assert operator.changes(NAME, *ROLES)[NAME]
    return booted


def test_a_second_apply_changes_nothing(node: Node, operator: Operator) -> None:
    """What is in force is found to be so on a real machine."""
    assert operator.changes(NAME, *ROLES) == {NAME: []}


def test_the_guard_stands_and_no_other_charon_runs(node: Node) -> None:
    """The kernel holds the rules for every block elsewhere, packets pass, and the ports of IKE are free."""
    rules = node.run("sudo nft list table inet bedplate_guard")

    assert "10.64.0.0/15" in rules
    assert node.run("sysctl -n net.ipv4.ip_forward").strip() == "1"
    assert node.run("systemctl is-enabled bedplate-guard.service").strip() == "enabled"
    assert node.run("systemctl is-active strongswan.service || true").strip() == "inactive"
    assert ":500 " not in node.run("ss -lun")
