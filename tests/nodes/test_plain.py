"""Plain pyinfra and plain pytest on a booted machine: what a user has where `bedplate node` is not wanted."""

import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from tests.testlab.machines.lab import BENCH, LabFolder
from tests.testlab.machines.operator import ROOT
from tests.testlab.machines.stand import Node, Stand

pytestmark = pytest.mark.nightly

_PYINFRA, _PYTEST = (str(Path(sys.executable).with_name(name)) for name in ("pyinfra", "pytest"))


@pytest.fixture(scope="module")
def lab(stand: Stand, lab_of_one: LabFolder) -> LabFolder:
    """Give the folder of the fleet, with ssh's configuration as `bedplate node ssh-config` writes it."""
    login = ("--user", "ubuntu", "--identity", str(stand.key))
    file = lab_of_one.folder / "ssh_config"
    written = lab_of_one.bedplate("node", "ssh-config", "--write", str(file), *login)
    assert written.returncode == 0, written.stderr
    return lab_of_one


@pytest.fixture(scope="module")
def first(node: Node, lab: LabFolder) -> CompletedProcess[str]:
    """Give what was said of the first apply, after which somebody has come in anew and confirmed."""
    done = _pyinfra(lab)
    node.ssh("sudo bedplate-trial confirm")
    return done


def test_pyinfra_makes_a_fresh_machine_what_the_plan_says(first: CompletedProcess[str], node: Node) -> None:
    """By the inventory and the deploy that lie in `roles`, with nothing of ours on the command line."""
    assert first.returncode == 0, first.stdout + first.stderr
    assert node.run("hostname").strip() == "titan-03"
    assert node.ssh("sudo bedplate-trial confirm").stdout.strip() == "nothing to confirm"


def test_pyinfra_changes_nothing_the_second_time(first: CompletedProcess[str], lab: LabFolder) -> None:
    """What is as it should be is left alone."""
    again = _pyinfra(lab)

    assert _totals(again)["changed"] == 0, again.stdout + again.stderr


def test_pyinfra_looks_at_one_role_alone(first: CompletedProcess[str], node: Node, lab: LabFolder) -> None:
    """By its data `only`; what others would mend is left."""
    node.run("hostname drifted; rm /etc/default/prometheus-node-exporter")

    done = _pyinfra(lab, "--data", "only=monitoring")

    assert done.returncode == 0, done.stdout + done.stderr
    assert "9100" in node.run("cat /etc/default/prometheus-node-exporter")
    assert node.run("hostname").strip() == "drifted"
    node.run("hostname titan-03")


def test_pytest_judges_the_machine(first: CompletedProcess[str], lab: LabFolder) -> None:
    """As docs/compliance.md has it: the fleet file, the machine, and no violation; status 0 says so."""
    checks = ("tests/compliance", f"--fleet={lab.fleet}", f"--hosts=shell://{BENCH}", "--sudo")

    done = lab.stand.desk.run(
        "env", "--chdir", str(ROOT), _PYTEST, *checks, f"--ssh-config={lab.folder / 'ssh_config'}"
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"\d+ passed", done.stdout)


def _pyinfra(lab: LabFolder, *more: str) -> CompletedProcess[str]:
    """Run pyinfra's own command from the project's folder, as the first account of the machine."""
    way = ("--limit", BENCH, "--data", f"ssh_config_file={lab.folder / 'ssh_config'}", *more)
    command = ("env", "--chdir", str(ROOT), _PYINFRA, "-y", "roles/inventory.py", "roles/deploy.py", *way)
    return lab.stand.desk.run(*command, env={**os.environ, "BEDPLATE_FLEET": str(lab.fleet)}, seconds=1800)


def _totals(done: CompletedProcess[str]) -> Mapping[str, int]:
    """Return how many operations there were, changed something, failed and changed nothing, as pyinfra tells."""
    (line,) = [line for line in (done.stdout + done.stderr).splitlines() if "Grand total" in line]
    numbers = [0 if word == "-" else int(word) for word in line.split()[2:]]
    return dict(zip(("all", "changed", "failed", "same"), numbers, strict=True))
