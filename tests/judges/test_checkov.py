"""checkov finds nothing in the stacks that is not listed with a reason, and finds each planted defect."""

from typing import Any

import pytest
from ruamel.yaml import YAML

from bedplate.terraform.resource import resources
from tests.conftest import DATA
from tests.support.judged import Verdict, checkov, written
from tests.support.listed import listed, unfound, unlisted
from tests.support.sown import Node, sown, twin

ROWS: list[dict[str, Any]] = YAML(typ="safe").load(DATA / "judges" / "defects.yaml")
SIDES = {"bad": sown, "good": twin}


@pytest.fixture(scope="module")
def tried(graph: list[Node], tmp_path_factory: pytest.TempPathFactory) -> Verdict:
    """Give what checkov says of every planted defect and of its good twin, each in a plan of its own."""
    graphs = {f"{kind}-{at}": take(row, graph) for at, row in enumerate(ROWS) for kind, take in SIDES.items()}
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
