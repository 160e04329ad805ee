"""Tests that checkov finds nothing in the stacks except listed findings, and finds each seeded defect."""

from typing import Any

import pytest
from ruamel.yaml import YAML

from tests.conftest import DATA
from tests.testlab.machines.judges import (
    Verdict,
    accepted_findings,
    checkov,
    obsolete_acceptances,
    unaccepted_findings,
    write_plans,
)
from tests.testlab.rehearsal.graphs import Node, codes, with_defect, without_defect
from tests.testlab.rehearsal.terraform import resources

ROWS: list[dict[str, Any]] = YAML(typ="safe").load(DATA / "judges" / "defects.yaml")
MISSED: list[dict[str, Any]] = YAML(typ="safe").load(DATA / "judges" / "blind.yaml")
TABLES = {"": ROWS, "blind-": MISSED}
SIDES = {"bad": with_defect, "good": without_defect}


@pytest.fixture(scope="module")
def tried(graph: list[Node], tmp_path_factory: pytest.TempPathFactory) -> Verdict:
    """Return checkov's findings for each seeded defect and its valid counterpart, in separate plans."""
    graphs = {
        f"{table}{side}-{at}": take(row, graph)
        for table, rows in TABLES.items()
        for at, row in enumerate(rows)
        for side, take in SIDES.items()
    }
    return checkov(write_plans(tmp_path_factory.mktemp("seeded"), graphs))


def test_every_resource_is_scanned(graph: list[Node], verdict: Verdict) -> None:
    """A resource that checkov cannot read would have no findings."""
    assert (verdict.seen, verdict.unread) == (len(resources(graph)), 0)


def test_every_finding_is_listed(verdict: Verdict) -> None:
    """Each finding is fixed, or has its reason in docs/judges.md."""
    assert not unaccepted_findings(verdict.failed, accepted_findings("checkov"))


def test_every_listed_finding_exists(verdict: Verdict) -> None:
    """An entry without a finding would hide the next finding."""
    assert not obsolete_acceptances(verdict.failed, accepted_findings("checkov"))


@pytest.mark.parametrize("at", range(len(ROWS)), ids=lambda at: f"{ROWS[at]['finds']}-{at}")
def test_a_seeded_defect_is_found(at: int, tried: Verdict) -> None:
    """Checkov reports the defect by the name of its check."""
    assert ROWS[at]["finds"] in {finding.check for finding in tried.failed if finding.file == f"bad-{at}"}


@pytest.mark.parametrize("at", range(len(ROWS)), ids=lambda at: f"{ROWS[at]['finds']}-{at}")
def test_a_valid_counterpart_passes(at: int, tried: Verdict) -> None:
    """The same check passes on the resource without the defect."""
    file = f"good-{at}"

    assert ROWS[at]["finds"] in {finding.check for finding in tried.passed if finding.file == file}
    assert ROWS[at]["finds"] not in {finding.check for finding in tried.failed if finding.file == file}


@pytest.mark.parametrize("at", range(len(MISSED)), ids=lambda at: f"{MISSED[at]['ours']}-{at}")
def test_our_rules_find_what_checkov_misses(at: int, graph: list[Node], tried: Verdict) -> None:
    """If checkov finds the defect, too, its row belongs into the other table."""
    theirs = {
        side: {finding.check for finding in tried.failed if finding.file == f"blind-{side}-{at}"} for side in SIDES
    }
    ours = {side: codes(take(MISSED[at], graph)) for side, take in SIDES.items()}

    assert theirs["bad"] <= theirs["good"]
    assert ours["bad"] - ours["good"] == {MISSED[at]["ours"]}
