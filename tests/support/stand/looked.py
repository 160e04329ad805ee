"""A look at a machine by the compliance checks: each rule as the machine is, then while its own defect is planted."""

import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Protocol

from bedplate.nodes.audit import CHECKS, role_of
from tests.support.planted import Defect, Rule
from tests.support.stand.node import Node
from tests.support.stand.operator import ROOT
from tests.support.stand.stand import Stand

FOUND = "kept, then violated"
"""What is to become of a rule: its promise was kept on the machine, and it saw its own defect."""


class Place(Protocol):
    """Machines of a stand, and the fleet file that they belong to."""

    @property
    def stand(self) -> Stand:
        """The stand."""

    @property
    def fleet(self) -> Path:
        """The fleet file."""


def looked(there: Place, node: Node, planted: Mapping[Rule, Defect], folder: Path) -> dict[Rule, str]:
    """Return what became of each rule on a machine: FOUND, or what was otherwise, with the rule's own words."""
    order, result = folder / f"{node.name}.json", folder / f"{node.name}.found"
    wanted = {"/".join(rule): asdict(each) for rule, each in planted.items()}
    order.write_text(json.dumps({"console": node.machine.console(), "defects": wanted, "found": str(result)}))
    way = (f"--fleet={there.fleet}", f"--hosts=shell://{node.name}", f"--ssh-config={there.stand.ssh_config}", "--sudo")
    setting = ("-c", str(CHECKS / "pytest.ini"), "--rootdir", str(CHECKS), "-p", "tests.support.planting")
    run = ("env", "--chdir", str(ROOT), sys.executable, "-m", "pytest", *setting, f"--planted={order}", *way)
    done = there.stand.desk.run(*run, *_files(role for role, _ in planted), seconds=1800)
    assert result.exists(), done.stdout + done.stderr
    told: dict[str, str] = json.loads(result.read_text())
    return {rule: told.get("/".join(rule), f"it does not concern {node.name}") for rule in planted}


def _files(roles: Iterable[str]) -> list[str]:
    wanted = set(roles)
    return [str(file) for file in sorted(CHECKS.glob("test_*.py")) if role_of(file.stem) in wanted]
