"""A look at a machine by the compliance checks of a role, each rule while its own defect is planted there."""

import json
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol

from bedplate.nodes.audit import CHECKS
from tests.support.planted import Defect
from tests.support.stand.node import Node
from tests.support.stand.operator import ROOT
from tests.support.stand.stand import Stand


class Place(Protocol):
    """Machines of a stand, and the fleet file that they belong to."""

    @property
    def stand(self) -> Stand:
        """The stand."""

    @property
    def fleet(self) -> Path:
        """The fleet file."""


def looked(there: Place, node: Node, role: str, planted: Mapping[str, Defect], folder: Path) -> dict[str, Any]:
    """Run the checks of a role on a machine, each with its defect; return what each said, nothing of the others."""
    files = [str(file) for file in sorted(CHECKS.glob(f"test_{role}*.py"))]
    if not (planted and files):
        return {}
    order, result = folder / f"{node.name}-{role}.json", folder / f"{node.name}-{role}.found"
    wanted = {rule: asdict(each) for rule, each in planted.items()}
    order.write_text(json.dumps({"console": node.machine.console(), "defects": wanted, "found": str(result)}))
    way = (f"--fleet={there.fleet}", f"--hosts=shell://{node.name}", f"--ssh-config={there.stand.ssh_config}", "--sudo")
    setting = ("-c", str(CHECKS / "pytest.ini"), "--rootdir", str(CHECKS), "-p", "tests.support.planting")
    run = ("env", "--chdir", str(ROOT), sys.executable, "-m", "pytest", *setting, f"--planted={order}", *way, *files)
    done = there.stand.desk.run(*run)
    assert result.exists(), done.stdout + done.stderr
    told: dict[str, Any] = json.loads(result.read_text())
    return told
