"""The role `efa`: which machines get it, and what it downloads."""

import subprocess
from pathlib import Path

import pytest

from bedplate.catalog import load_catalog
from bedplate.catalog.software import EFA_SUM
from bedplate.plan.nodes import find_node
from roles.catalog import roles_of
from roles.efa.role import DOWNLOADS, FOLDER, SYSCTL, Efa, EfaVersion
from tests.testlab.fakes.node import Recorder, recorded
from tests.testlab.fleets.variants import lab_node
from tests.testlab.rehearsal.programs import EXAMPLES, plan_of_text

SOFTWARE = load_catalog().software_set("2026-11")
DIGEST = SOFTWARE.value(EFA_SUM)
VERIFIED = Efa(SOFTWARE.with_checksum(EFA_SUM, DIGEST))
UBUNTU = recorded("ubuntu-24.04")
INSTALL = "Install EFA 1.50.0"


def test_only_machines_with_a_fabric_have_the_role() -> None:
    """GPUs do not matter for the role."""
    lab = (EXAMPLES / "lab.yaml").read_text().replace("[m7i.4xlarge]", "[c7i.48xlarge]\n    fabric: efa")
    node = find_node(plan_of_text(lab), "workbench-cpu-1.us-west-2", load_catalog())

    assert [role.software for role in roles_of(node) if isinstance(role, Efa)] == [load_catalog().software_set(None)]
    assert "efa" not in {role.name for role in roles_of(lab_node("workbench-cpu-1.us-west-2"))}


@pytest.mark.parametrize(("installed", "installs"), [("1.47.0", True), ("1.50.0", False)], ids=["older", "same"])
def test_another_version_is_replaced(installed: str, *, installs: bool) -> None:
    """The installer's record tells; huge pages are reserved in any case."""
    played = Recorder(UBUNTU.but({EfaVersion.name: (installed,)})).play(VERIFIED)

    assert (INSTALL in played.names) is installs
    assert "vm.nr_hugepages = 5128" in played.written(SYSCTL)


def test_an_unverified_installer_is_not_downloaded() -> None:
    """It would run as root."""
    assert INSTALL not in Recorder(UBUNTU).play(Efa(SOFTWARE)).names


@pytest.mark.parametrize(("content", "runs"), [("right", True), ("wrong", False)])
def test_only_the_right_installer_runs(tmp_path: Path, content: str, *, runs: bool) -> None:
    """A download with another checksum is not unpacked."""
    source = tmp_path / "source"
    (source / "aws-efa-installer").mkdir(parents=True)
    script = source / "aws-efa-installer" / "efa_installer.sh"
    script.write_text(f'#!/bin/sh\necho "$@" >{tmp_path}/ran\n')
    script.chmod(0o755)
    archive = source / "aws-efa-installer-1.50.0.tar.gz"
    subprocess.run(["tar", "--create", "--gzip", "--file", archive, "-C", source, "aws-efa-installer"], check=True)
    digest = subprocess.run(["sha256sum", archive], capture_output=True, text=True, check=True).stdout.split()[0]
    (command,) = Recorder(UBUNTU.but({EfaVersion.name: None})).play(VERIFIED).step(INSTALL).commands
    command = command.replace(DOWNLOADS, f"file://{source}")
    command = command.replace(FOLDER, str(tmp_path / "work"))

    done = subprocess.run(
        ["sh", "-c", command.replace(DIGEST, digest if content == "right" else "0" * 64)], check=False
    )

    assert (done.returncode == 0) is runs
    assert (tmp_path / "ran").exists() is runs
    assert (tmp_path / "work").exists() is not runs
