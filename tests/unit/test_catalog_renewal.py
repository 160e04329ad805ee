"""What of AWS's answers becomes the catalogue, and which answers are not believed."""

from dataclasses import replace
from datetime import date

import pytest

from bedplate.catalog import Catalog, InstanceFacts, RegionFacts, load_catalog
from bedplate.catalog.renewal import Change, RegionAnswer, changes, check_whole, renewed
from bedplate.catalog.rewritten import RENEWED, rewritten
from bedplate.catalog.sheet import Sheet
from bedplate.catalog.shipped import shipped
from bedplate.errors import ViolationError

NORTH, SOUTH = "xx-north-1", "xx-south-1"


def _facts(name: str, vcpus: int = 2) -> InstanceFacts:
    return InstanceFacts(name, "x86_64", vcpus, 4096)


KNOWN = Catalog(
    regions={name: RegionFacts(name, (f"{name}a",), opt_in=False) for name in (NORTH, SOUTH)},
    types={name: _facts(name) for name in ("a9.large", "b9.large", "c9.large")},
    offers={"a9.large": {NORTH: "ab", SOUTH: "a"}, "b9.large": {NORTH: "a"}, "c9.large": {}},
    prices={"a9.large": 1.0},
)


def test_a_region_that_was_asked_tells_all_of_its_offers() -> None:
    """Zones come and go; the other region's stay as they were."""
    answer = RegionAnswer({"a9.large": _facts("a9.large")}, {"a9.large": "bc", "d9.large": "a"})

    offers = renewed(KNOWN, {NORTH: answer}, {}).offers

    assert offers == {"a9.large": {NORTH: "bc", SOUTH: "a"}, "c9.large": {}, "d9.large": {NORTH: "a"}}


@pytest.mark.parametrize(
    ("asked", "gone"),
    [((SOUTH,), set()), ((NORTH,), {"b9.large"}), ((NORTH, SOUTH), {"a9.large", "b9.large", "c9.large"})],
)
def test_a_type_goes_when_nobody_is_left_who_might_tell_of_it(asked: tuple[str, ...], gone: set[str]) -> None:
    """A region that was not asked may still have it; one that nobody offers needs the silence of all."""
    silent = dict.fromkeys(asked, RegionAnswer({}, {}))

    assert KNOWN.types.keys() - renewed(KNOWN, silent, {}).types.keys() == gone


def test_changes_are_counted() -> None:
    """Offers region by region, types and prices over all."""
    answer = RegionAnswer({"a9.large": _facts("a9.large", 4), "d9.large": _facts("d9.large")}, {"a9.large": "ab"})

    after = renewed(KNOWN, {NORTH: answer}, {"a9.large": 2.0, "d9.large": 1.0})

    assert tuple(changes(KNOWN, after)) == (
        Change("instance types", 3, 1, 1, 1),
        Change("prices", 1, 1, 1, 0),
        Change(f"offers in {NORTH}", 2, 0, 0, 1),
        Change(f"offers in {SOUTH}", 1, 0, 0, 0),
    )


@pytest.mark.parametrize(("dropped", "is_large"), [(0, False), (10, False), (11, True), (100, True)])
def test_more_than_a_tenth_gone_is_not_believed(dropped: int, is_large: bool) -> None:  # noqa: FBT001  the rule's two sides
    """An answer that was cut short looks like that."""
    assert Change("prices", 100, 500, 500, dropped).is_large is is_large


def test_a_cut_answer_names_what_would_be_lost() -> None:
    """And how to insist, in case AWS did drop it."""
    with pytest.raises(ViolationError, match=f"20 of 100 offers in {NORTH}") as refused:
        check_whole((Change("prices", 100, 0, 0, 0), Change(f"offers in {NORTH}", 100, 0, 0, 20)))

    assert "--force" in refused.value.fix


def test_the_same_facts_make_the_same_rows() -> None:
    """A refresh without news changes the headings alone."""
    before = {name: shipped(name) for name in RENEWED}
    catalog = load_catalog()

    texts = rewritten(before, catalog, catalog.regions, date(2027, 1, 2))

    for name, text in texts.items():
        rows = [line for line in text.splitlines() if not line.startswith("#")]
        assert tuple(rows) == before[name].rows
        assert text.startswith("# date: 2027-01-02\n# source: ")


@pytest.mark.parametrize(
    ("asked", "source"),
    [
        ((NORTH,), f"EC2 DescribeInstanceTypes, asked in {NORTH}; the others as of 2026"),
        ((SOUTH, NORTH), f"EC2 DescribeInstanceTypes, asked in {NORTH}, {SOUTH}"),
    ],
)
def test_the_heading_says_who_was_asked(asked: tuple[str, ...], source: str) -> None:
    """A date of today must not cover facts of last year."""
    old = Sheet({"date": "2026", "source": "elsewhere", "unit": "letters"}, ())

    text = rewritten(dict.fromkeys(RENEWED, old), replace(KNOWN, offers={}), asked, date(2027, 1, 2))["instances"]

    assert f"# source: {source}\n# unit: letters\n" in text
