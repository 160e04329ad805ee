"""Every rule of the compliance checks is seen to fail: its defect is planted on a machine, and the check finds it.

Rules of gateways of laptops have machines of their own (test_laptop_gateway.py).
"""

from typing import Any

import pytest

from tests.support.planted import LAPTOPS, Defect, defects, rules
from tests.support.stand.applied import Lab, Parting
from tests.support.stand.looked import looked

_RULES = tuple((role, rule) for role, rule in rules() if role != LAPTOPS)
_DEFECTS = {each: defect for each, defect in defects().items() if each in _RULES}


@pytest.fixture(scope="module")
def found(lab: Lab, parting: Parting, tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], Any]:
    """Give what each rule said while its defect was planted."""
    folder = tmp_path_factory.mktemp("planted")
    machines = sorted({defect.on for defect in _DEFECTS.values()})
    roles = sorted({role for role, _ in _DEFECTS})
    told = {
        (name, role): looked(lab, lab.nodes[name], role, _planted(role, name), folder)
        for name in machines
        for role in roles
    }
    return {(role, rule): what for (_, role), each in told.items() for rule, what in each.items()}


def _planted(role: str, name: str) -> dict[str, Defect]:
    return {rule: each for (of, rule), each in _DEFECTS.items() if (of, each.on) == (role, name)}


@pytest.mark.parametrize(("role", "rule"), _RULES, ids=["-".join(each) for each in _RULES])
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
