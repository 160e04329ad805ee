"""Tests of the comparison of findings with the tables in docs/judges.md."""

import pytest

from tests.testlab.machines.judges import Finding, accepted_findings, obsolete_acceptances, unaccepted_findings

PAGE = """
### checkov

| check | where | says | reason |
| --- | --- | --- | --- |
| CKV_1 | `aws_vpc.*` | Given [1] * | first reason |

### parliament

| check | where | says | reason |
| --- | --- | --- | --- |
| STAR | `*` | Star | second reason |
"""
FINDING = Finding("CKV_1", "aws_vpc.lab", "Given [1] and more", "lab")


def test_a_finding_is_listed_by_check_place_and_message() -> None:
    """Each scanner has its own table."""
    assert [row.reason for row in accepted_findings("checkov", PAGE)] == ["first reason"]
    assert not unaccepted_findings([FINDING], accepted_findings("checkov", PAGE))
    assert not obsolete_acceptances([FINDING], accepted_findings("checkov", PAGE))


@pytest.mark.parametrize(
    "finding",
    [
        Finding("CKV_2", "aws_vpc.lab", "Given [1] and more", "lab"),
        Finding("CKV_1", "aws_eip.lab", "Given [1] and more", "lab"),
        Finding("CKV_1", "aws_vpc.lab", "Given 1 and more", "lab"),
    ],
    ids=["check", "place", "message"],
)
def test_a_different_finding_is_not_listed(finding: Finding) -> None:
    """A finding with another check, place or message is unlisted, and its row has no finding."""
    assert unaccepted_findings([finding], accepted_findings("checkov", PAGE)) == [finding]
    assert obsolete_acceptances([finding], accepted_findings("checkov", PAGE)) == list(
        accepted_findings("checkov", PAGE)
    )
