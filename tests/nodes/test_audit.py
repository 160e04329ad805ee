"""`bedplate node audit` on booted nodes: fresh, repaired, unreachable, and without sudo."""

import sys
from pathlib import Path
from typing import Any

import pytest

from tests.testlab.machines.node_lab import Node, NodeLab
from tests.testlab.machines.operator import ROOT, Operator
from tests.testlab.rehearsal.programs import EXAMPLES

pytestmark = pytest.mark.nightly

RULE = "hostname-matches-the-plan"


@pytest.fixture(scope="module")
def node(node_lab: NodeLab) -> Node:
    """Return a fresh node without any role."""
    return node_lab.boot("titan-01.cellar", "192.168.40.21")


@pytest.fixture(scope="module")
def operator(node_lab: NodeLab) -> Operator:
    """Return the operator of the lab."""
    return Operator(node_lab, EXAMPLES / "lab.yaml")


def test_fresh_node_violates_rules(node: Node, operator: Operator) -> None:
    """An audit of a fresh node exits with 3, and shows each failed rule with the actual value."""
    done = operator.audit(node.name, "--role", "baseline")

    assert done.returncode == 3, done.stderr
    assert f"failed   baseline   {RULE}" in done.stdout
    assert {"found: fresh", "expected: titan-01"} <= {line.strip() for line in done.stdout.splitlines()}, done.stdout


def test_repaired_rule_is_kept(node: Node, operator: Operator) -> None:
    """The audit reads the present state of the node, as root."""
    node.run("hostname titan-01")

    assert outcomes(operator.findings(node.name, "--role", "baseline"))[RULE] == "passed"


def test_unreachable_node_does_not_stop_others(node: Node, operator: Operator) -> None:
    """An unreachable node is reported, and the other nodes are audited."""
    document = operator.findings(node.name, "gate.cellar", "--role", "baseline")

    audited, unreached = document["nodes"]
    assert audited["verdicts"]
    assert "Could not resolve hostname" in unreached["unreached"]


def test_node_without_sudo_is_not_reached(node: Node, operator: Operator) -> None:
    """A node that refuses sudo counts as not reached, because half of the rules need root."""
    node.run("mv /etc/sudoers.d/90-cloud-init-users /root/")

    done = operator.audit(node.name)
    node.run("mv /root/90-cloud-init-users /etc/sudoers.d/")

    assert done.returncode == 6
    assert "sudo: a password is required" in done.stdout


def test_rules_run_with_plain_pytest(node: Node, node_lab: NodeLab, tmp_path: Path) -> None:
    """The rules run with plain pytest, and its JUnit file has node, role and description."""
    junit = tmp_path / "junit.xml"
    checks = (
        "-m",
        "pytest",
        str(ROOT / "tests/compliance/test_baseline.py"),
        f"--hosts=ssh://{node.name}",
        "--sudo",
    )
    where = (f"--fleet={EXAMPLES / 'lab.yaml'}", f"--ssh-config={node_lab.ssh_config}", f"--junitxml={junit}")

    done = node_lab.workstation.run(sys.executable, *checks, *where)

    assert f"{node.name}: " in done.stdout
    assert '<property name="role" value="baseline"' in junit.read_text()


def outcomes(document: dict[str, Any]) -> dict[str, str]:
    """Return the outcome of each rule in an audit of one node."""
    (node,) = document["nodes"]
    return {verdict["rule"]: verdict["outcome"] for verdict in node["verdicts"]}
