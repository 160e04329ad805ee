"""`bedplate node audit` on machines that answer, that do not, and that stop answering."""

import sys
from pathlib import Path
from typing import Any

import pytest

from tests.testlab.machines.operator import ROOT, Operator
from tests.testlab.machines.stand import Node, Stand
from tests.testlab.rehearsal.programs import EXAMPLES

pytestmark = pytest.mark.nightly

RULE = "hostname-matches-the-plan"


@pytest.fixture(scope="module")
def node(stand: Stand) -> Node:
    """Give a fresh machine, which is nothing yet of what it ought to be."""
    return stand.boot("titan-01.cellar", "192.168.40.21")


@pytest.fixture(scope="module")
def operator(stand: Stand) -> Operator:
    """Give the operator of the lab."""
    return Operator(stand, EXAMPLES / "lab.yaml")


def test_a_fresh_machine_is_found_wanting(node: Node, operator: Operator) -> None:
    """Status 3, each violated rule with its promise and what is so instead."""
    done = operator.audit(node.name, "--role", "baseline")

    assert done.returncode == 3, done.stderr
    assert f"violated   baseline   {RULE}" in done.stdout
    assert "assert 'fresh' == 'titan-01'" in done.stdout


def test_what_was_mended_is_seen(node: Node, operator: Operator) -> None:
    """The checks look at the machine as it is now, as root."""
    node.run("hostname titan-01")

    assert outcomes(operator.findings(node.name, "--role", "baseline"))[RULE] == "kept"


def test_a_machine_that_is_silent_is_named_and_the_others_are_judged(node: Node, operator: Operator) -> None:
    """One lost machine costs nobody else's findings."""
    document = operator.findings(node.name, "gate.cellar", "--role", "baseline")

    judged, silent = document["nodes"]
    assert judged["verdicts"]
    assert "Could not resolve hostname" in silent["unreached"]


def test_without_sudo_nothing_is_judged(node: Node, operator: Operator) -> None:
    """Half of the rules cannot be seen without rights: the machine counts as not reached, with the reason."""
    node.run("mv /etc/sudoers.d/90-cloud-init-users /root/")

    done = operator.audit(node.name)
    node.run("mv /root/90-cloud-init-users /etc/sudoers.d/")

    assert done.returncode == 6
    assert "sudo: a password is required" in done.stdout


def test_the_checks_run_without_us(node: Node, stand: Stand, tmp_path: Path) -> None:
    """A user's CI needs pytest and the fleet file alone; its own JUnit file names node, role and promise."""
    junit = tmp_path / "junit.xml"
    checks = (
        "-m",
        "pytest",
        str(ROOT / "bedplate/compliance/test_baseline.py"),
        f"--hosts=ssh://{node.name}",
        "--sudo",
    )
    where = (f"--fleet={EXAMPLES / 'lab.yaml'}", f"--ssh-config={stand.ssh_config}", f"--junitxml={junit}")

    done = stand.desk.run(sys.executable, *checks, *where)

    assert f"{node.name}: " in done.stdout
    assert '<property name="role" value="baseline"' in junit.read_text()


def outcomes(document: dict[str, Any]) -> dict[str, str]:
    """Return what became of each rule on the one machine of an audit."""
    (node,) = document["nodes"]
    return {verdict["rule"]: verdict["outcome"] for verdict in node["verdicts"]}
