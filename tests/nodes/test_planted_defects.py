"""Every rule of the compliance checks is seen to fail: its defect is planted on a machine, and the check finds it."""

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from bedplate.nodes.audit import CHECKS
from tests.support.planted import defects, rules
from tests.support.stand.applied import Lab, Parting
from tests.support.stand.operator import ROOT

_DEFECTS = defects()


@pytest.fixture(scope="module")
def found(lab: Lab, parting: Parting, tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], Any]:
    """Give what each rule said while its defect was planted."""
    folder = tmp_path_factory.mktemp("planted")
    machines = sorted({defect.on for defect in _DEFECTS.values()})
    roles = sorted({role for role, _ in _DEFECTS})
    told = {(name, role): looked(lab, name, role, folder) for name in machines for role in roles}
    return {(role, rule): what for (_, role), each in told.items() for rule, what in each.items()}


@pytest.mark.parametrize(("role", "rule"), rules(), ids=["-".join(each) for each in rules()])
def test_the_planted_defect_is_found(role: str, rule: str, found: dict[tuple[str, str], Any]) -> None:
    """The rule is violated while its defect stands; what a test node cannot show is at least not violated."""
    told = found.get((role, rule), {"outcome": "not asked", "words": "it concerns none of these machines"})

    wanted = {"passed", "skipped", "not asked"} if _DEFECTS[role, rule].here else {"failed"}
    assert told["outcome"] in wanted, told["words"]


def test_nothing_is_left_of_the_defects(found: dict[tuple[str, str], Any], lab: Lab) -> None:
    """The good twin: with every defect undone, no rule is violated."""
    document = lab.operator.findings(*lab.nodes)

    left = [verdict for node in document["nodes"] for verdict in node["verdicts"] if verdict["outcome"] == "violated"]
    assert left == []


def looked(lab: Lab, name: str, role: str, folder: Path) -> dict[str, Any]:
    """Run the checks of a role on a machine, each with its own defect; return what each said."""
    wanted = {rule: asdict(each) for (of, rule), each in _DEFECTS.items() if (of, each.on) == (role, name)}
    files = [str(file) for file in sorted(CHECKS.glob(f"test_{role}*.py"))]
    if not (wanted and files):
        return {}
    order, result = folder / f"{name}-{role}.json", folder / f"{name}-{role}.found"
    console = lab.nodes[name].machine.console()
    order.write_text(json.dumps({"console": console, "defects": wanted, "found": str(result)}))
    way = (f"--fleet={lab.fleet}", f"--hosts=shell://{name}", f"--ssh-config={lab.stand.ssh_config}", "--sudo")
    setting = ("-c", str(CHECKS / "pytest.ini"), "--rootdir", str(CHECKS), "-p", "tests.support.planting")
    run = ("env", "--chdir", str(ROOT), sys.executable, "-m", "pytest", *setting, f"--planted={order}", *way, *files)
    done = lab.stand.desk.run(*run)
    assert result.exists(), done.stdout + done.stderr
    told: dict[str, Any] = json.loads(result.read_text())
    return told
