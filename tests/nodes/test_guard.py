"""The role `guard` on a real machine: a site's gateway is under guard before it has a tunnel."""

from base64 import b64encode
from shlex import quote
from time import sleep

import pytest

from tests.support.declared import EXAMPLES
from tests.support.lab_pair import ATTIC, CELLAR, one_key
from tests.support.stand.node import Node
from tests.support.stand.operator import Operator
from tests.support.stand.stand import Stand
from vpn.sites.engine import PROBE, Engine, engine_told
from vpn.sites.files import files_of
from vpn.sites.pair import joined

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


def test_a_charon_that_is_killed_comes_back_with_its_timer(node: Node) -> None:
    """By the units that lie on a gateway: the daemon starts, is started again when it dies, and is looked after."""
    assert engine_told(node.run(f"sudo sh -c {quote(PROBE)}")) in Engine
    for file in files_of(joined(CELLAR, (ATTIC,), one_key(), Engine.DAEMON)):
        text = b64encode(file.text.encode()).decode()
        node.run(f"sudo mkdir -p {file.path.parent}; echo {text} | base64 -d | sudo tee {file.path} >/dev/null")
        node.run(f"sudo chmod {file.mode:o} {file.path}")
    node.run("sudo systemctl daemon-reload; sudo systemctl start bedplate-ipsec-attic.service")
    first = node.run("systemctl show -P MainPID bedplate-ipsec-attic.service")

    node.run("sudo systemctl kill -s KILL bedplate-ipsec-attic.service")
    sleep(6)

    units = "bedplate-ipsec-attic.service bedplate-ipsec-attic-dial.timer"
    assert node.run(f"systemctl is-active {units}").split() == ["active", "active"]
    assert node.run("systemctl show -P MainPID bedplate-ipsec-attic.service") != first
    node.run("sudo systemctl stop bedplate-ipsec-attic.service")
