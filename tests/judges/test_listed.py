"""What a judge finds, held against what docs/judges.md lists."""

import pytest

from tests.testlab.machines.judges import Finding, listed, unfound, unlisted

PAGE = """
### checkov

| check | where | says | reason |
| --- | --- | --- | --- |
| CKV_1 | `aws_vpc.*` | Given [1] * | it is so |

### parliament

| check | where | says | reason |
| --- | --- | --- | --- |
| STAR | `*` | Star | as well |
"""
FOUND = Finding("CKV_1", "aws_vpc.lab", "Given [1] and more", "lab")


def test_what_is_listed_is_known_by_check_place_and_words() -> None:
    """Each judge has its own table."""
    assert [row.reason for row in listed("checkov", PAGE)] == ["it is so"]
    assert not unlisted([FOUND], listed("checkov", PAGE))
    assert not unfound([FOUND], listed("checkov", PAGE))


@pytest.mark.parametrize(
    "found",
    [
        Finding("CKV_2", "aws_vpc.lab", "Given [1] and more", "lab"),
        Finding("CKV_1", "aws_eip.lab", "Given [1] and more", "lab"),
        Finding("CKV_1", "aws_vpc.lab", "Given 1 and more", "lab"),
    ],
    ids=["check", "place", "words"],
)
def test_what_differs_in_one_of_them_is_not_listed(found: Finding) -> None:
    """And what is listed is then not found."""
    assert unlisted([found], listed("checkov", PAGE)) == [found]
    assert unfound([found], listed("checkov", PAGE)) == list(listed("checkov", PAGE))
