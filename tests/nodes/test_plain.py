"""Plain pyinfra and plain pytest on a booted node, without `bedplate node`."""

import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from tests.testlab.machines.lab import WORKBENCH, FleetFolder
from tests.testlab.machines.node_lab import Node, NodeLab
from tests.testlab.machines.operator import ROOT

pytestmark = pytest.mark.nightly

_PYINFRA, _PYTEST = (str(Path(sys.executable).with_name(name)) for name in ("pyinfra", "pytest"))


@pytest.fixture(scope="module")
def lab(node_lab: NodeLab, fleet_folder: FleetFolder) -> FleetFolder:
    """Return an operator's folder with the SSH configuration of `bedplate node ssh-config`."""
    login = ("--user", "ubuntu", "--identity", str(node_lab.key))
    file = fleet_folder.folder / "ssh_config"
    written = fleet_folder.bedplate("node", "ssh-config", "--write", str(file), *login)
    assert written.returncode == 0, written.stderr
    return fleet_folder


@pytest.fixture(scope="module")
def first(node: Node, lab: FleetFolder) -> CompletedProcess[str]:
    """Run pyinfra for the first time and confirm the new settings; return its result."""
    done = _pyinfra(lab)
    node.ssh("sudo bedplate-trial confirm")
    return done


def test_pyinfra_applies_a_fresh_node(first: CompletedProcess[str], node: Node) -> None:
    """Plain pyinfra applies a fresh node with the inventory and the deploy in `roles`."""
    assert first.returncode == 0, first.stdout + first.stderr
    assert node.run("hostname").strip() == "titan-03"
    assert node.ssh("sudo bedplate-trial confirm").stdout.strip() == "nothing to confirm"


def test_second_pyinfra_run_changes_nothing(first: CompletedProcess[str], lab: FleetFolder) -> None:
    """A second run of pyinfra changes nothing."""
    again = _pyinfra(lab)

    assert _totals(again)["changed"] == 0, again.stdout + again.stderr


def test_pyinfra_applies_one_role(first: CompletedProcess[str], node: Node, lab: FleetFolder) -> None:
    """With the data `only`, pyinfra applies one role and leaves the changes of others."""
    node.run("hostname drifted; rm /etc/default/prometheus-node-exporter")

    done = _pyinfra(lab, "--data", "only=monitoring")

    assert done.returncode == 0, done.stdout + done.stderr
    assert "9100" in node.run("cat /etc/default/prometheus-node-exporter")
    assert node.run("hostname").strip() == "drifted"
    node.run("hostname titan-03")


def test_pytest_audits_the_node(first: CompletedProcess[str], lab: FleetFolder) -> None:
    """Plain pytest audits the node as docs/compliance.md says, and exits with 0."""
    options = ("tests/compliance", f"--fleet={lab.fleet}", f"--hosts=shell://{WORKBENCH}")

    done = lab.node_lab.workstation.run(
        "env", "--chdir", str(ROOT), _PYTEST, *options, f"--ssh-config={lab.folder / 'ssh_config'}"
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"\d+ passed", done.stdout)


def _pyinfra(lab: FleetFolder, *more: str) -> CompletedProcess[str]:
    """Run the command `pyinfra` in the project's folder, as the first account of the node."""
    options = ("--limit", WORKBENCH, "--data", f"ssh_config_file={lab.folder / 'ssh_config'}", *more)
    command = ("env", "--chdir", str(ROOT), _PYINFRA, "-y", "roles/inventory.py", "roles/deploy.py", *options)
    return lab.node_lab.workstation.run(*command, env={**os.environ, "BEDPLATE_FLEET": str(lab.fleet)}, seconds=1800)


def _totals(done: CompletedProcess[str]) -> Mapping[str, int]:
    """Return pyinfra's totals of operations by result."""
    (line,) = [line for line in (done.stdout + done.stderr).splitlines() if "Grand total" in line]
    numbers = [0 if word == "-" else int(word) for word in line.split()[2:]]
    return dict(zip(("all", "changed", "failed", "same"), numbers, strict=True))
