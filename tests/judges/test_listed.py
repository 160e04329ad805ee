"""Tests of the comparison of findings with the tables in docs/judges.md."""

import pytest

from tests.testlab.machines.judges import Finding, listed, unfound, unlisted

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
    assert [row.reason for row in listed("checkov", PAGE)] == ["first reason"]
    assert not unlisted([FINDING], listed("checkov", PAGE))
    assert not unfound([FINDING], listed("checkov", PAGE))


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
    assert unlisted([finding], listed("checkov", PAGE)) == [finding]
    assert unfound([finding], listed("checkov", PAGE)) == list(listed("checkov", PAGE))
