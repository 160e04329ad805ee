"""checkov finds nothing in the stacks that is not listed with a reason, and finds each planted defect."""

from typing import Any

import pytest
from ruamel.yaml import YAML

from bedplate.graph.terraform import resources
from tests.conftest import DATA
from tests.testlab.machines.judges import Verdict, checkov, listed, unfound, unlisted, written
from tests.testlab.rehearsal.graphs import Node, codes, with_defect, without_defect

ROWS: list[dict[str, Any]] = YAML(typ="safe").load(DATA / "judges" / "defects.yaml")
BLIND: list[dict[str, Any]] = YAML(typ="safe").load(DATA / "judges" / "blind.yaml")
TABLES = {"": ROWS, "blind-": BLIND}
SIDES = {"bad": with_defect, "good": without_defect}


@pytest.fixture(scope="module")
def tried(graph: list[Node], tmp_path_factory: pytest.TempPathFactory) -> Verdict:
    """Give what checkov says of every planted defect and of its good twin, each in a plan of its own."""
    graphs = {
        f"{table}{side}-{at}": take(row, graph)
        for table, rows in TABLES.items()
        for at, row in enumerate(rows)
        for side, take in SIDES.items()
    }
    return checkov(written(tmp_path_factory.mktemp("sown"), graphs))


def test_every_resource_is_judged(graph: list[Node], verdict: Verdict) -> None:
    """Silence about what was not read would prove nothing."""
    assert (verdict.seen, verdict.unread) == (len(resources(graph)), 0)


def test_nothing_is_found_that_is_not_listed(verdict: Verdict) -> None:
    """Each finding is mended, or has its reason in docs/judges.md."""
    assert not unlisted(verdict.failed, listed("checkov"))


def test_nothing_is_listed_that_is_not_found(verdict: Verdict) -> None:
    """A reason that outlives its finding would hide the next one."""
    assert not unfound(verdict.failed, listed("checkov"))


@pytest.mark.parametrize("at", range(len(ROWS)), ids=lambda at: f"{ROWS[at]['finds']}-{at}")
def test_a_planted_defect_is_found(at: int, tried: Verdict) -> None:
    """By the name of its check."""
    assert ROWS[at]["finds"] in {found.check for found in tried.failed if found.file == f"bad-{at}"}


@pytest.mark.parametrize("at", range(len(ROWS)), ids=lambda at: f"{ROWS[at]['finds']}-{at}")
def test_its_good_twin_passes(at: int, tried: Verdict) -> None:
    """Looked at by the same check, and found right."""
    mine = f"good-{at}"

    assert ROWS[at]["finds"] in {found.check for found in tried.passed if found.file == mine}
    assert ROWS[at]["finds"] not in {found.check for found in tried.failed if found.file == mine}


@pytest.mark.parametrize("at", range(len(BLIND)), ids=lambda at: f"{BLIND[at]['ours']}-{at}")
def test_what_the_judge_does_not_see_our_own_rules_do(at: int, graph: list[Node], tried: Verdict) -> None:
    """And where it learns to see it, the row belongs in the other table."""
    told = {side: {found.check for found in tried.failed if found.file == f"blind-{side}-{at}"} for side in SIDES}
    own = {side: codes(take(BLIND[at], graph)) for side, take in SIDES.items()}

    assert told["bad"] <= told["good"]
    assert own["bad"] - own["good"] == {BLIND[at]["ours"]}
