"""Every rule of the compliance checks is seen to fail: its defect is planted on a machine, and the check finds it.

Rules that no machine of the lab can break have machines of their own (test_laptop_gateway.py, test_workbench.py,
test_homes.py); tests/testlab/machines/defects.py says which.
"""

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.testlab.machines.defects import Defect, Rule, Where, planted
from tests.testlab.machines.lab import FOUND, Lab, Parting, looked

_DEFECTS = planted(Where.LAB)
# Where no machine reaches micromamba's makers, its rule is left unjudged until somebody plants another program.
FROM_AFAR, UNREACHED = ("workbench", "micromamba-is-the-pinned-version"), "not judged, then violated"


@pytest.fixture(scope="module")
def found(lab: Lab, parting: Parting, tmp_path_factory: pytest.TempPathFactory) -> dict[Rule, str]:
    """Give what became of each rule, on all machines side by side."""
    folder = tmp_path_factory.mktemp("planted")
    machines = sorted({defect.on for defect in _DEFECTS.values()})
    with ThreadPoolExecutor() as pool:
        told = pool.map(lambda name: looked(lab, lab.nodes[name], _planted(name), folder), machines)
        return {rule: what for each in told for rule, what in each.items()}


def _planted(name: str) -> dict[Rule, Defect]:
    return {rule: each for rule, each in _DEFECTS.items() if each.on == name}


@pytest.mark.parametrize("rule", _DEFECTS, ids="-".join)
def test_the_planted_defect_is_found(rule: Rule, found: dict[Rule, str]) -> None:
    """The rule is kept on the machine as the roles made it, and violated while its defect stands."""
    assert found[rule] in ({FOUND, UNREACHED} if rule == FROM_AFAR else {FOUND})


def test_nothing_is_left_of_the_defects(found: dict[Rule, str], lab: Lab) -> None:
    """The good twin: with every defect undone, no rule is violated."""
    document = lab.operator.findings(*lab.nodes)

    left = [verdict for node in document["nodes"] for verdict in node["verdicts"] if verdict["outcome"] == "violated"]
    assert left == []
