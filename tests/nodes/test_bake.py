"""The install stage of all roles in a root folder without systemd, as in an image bake."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.testlab.machines.container import mounted
from tests.testlab.machines.layers import baked
from tests.testlab.machines.operator import ROOT
from tests.testlab.run import need_root

pytestmark = pytest.mark.nightly

# A bake runs pyinfra in a root folder, with the install stage only.
DEPLOY = """
from roles.catalog import roles_of
from roles.base import deploy
from tests.testlab.fleets.variants import lab_node

deploy(roles_of(lab_node("{name}")), stages=["install"])
"""


@pytest.mark.parametrize("name", ["workbench-cpu-1.us-west-2", "nas.cellar"])
def test_install_needs_no_systemd(name: str, tmp_path: Path) -> None:
    """The install stage needs no systemd, writes no settings of a node, and a second bake changes nothing."""
    need_root()
    program = tmp_path / "deploy.py"
    program.write_text(DEPLOY.format(name=name))

    with mounted(baked(), tmp_path / "disk") as root:
        for name_ in ("resolv.conf", "hosts"):
            (root / "etc" / name_).unlink(missing_ok=True)  # resolv.conf is a link into /run
            shutil.copy(f"/etc/{name_}", root / "etc" / name_)
        first, second = (bake(root, program) for _ in range(2))
        installed = (root / "usr/bin/prometheus-node-exporter").exists()
        hosts = (root / "etc/hosts").read_text()

    assert first.returncode == 0, first.stdout + first.stderr
    assert installed
    assert "lab.internal" not in hosts
    total, *_, unchanged = summary(second)
    assert total == unchanged, second.stdout + second.stderr


def bake(root: Path, program: Path) -> subprocess.CompletedProcess[str]:
    """Run the install stage with plain pyinfra."""
    command = [sys.executable, "-m", "pyinfra", "-y", f"@chroot/{root}", str(program)]
    path = {"PYTHONPATH": str(ROOT), "PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root"}
    return subprocess.run(command, env=path, cwd=ROOT, capture_output=True, text=True, check=False, timeout=600)


def summary(done: subprocess.CompletedProcess[str]) -> list[str]:
    """Return pyinfra's totals: operations, changed, failed, unchanged."""
    (line,) = [line for line in (done.stdout + done.stderr).splitlines() if "Grand total" in line]
    return line.split()[2:]
