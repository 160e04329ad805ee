"""What a mistyped word is taken for."""

import pytest

from bedplate.catalog import load_catalog
from bedplate.catalog.nearest import edits, nearest

TYPES = load_catalog().types
REGIONS = load_catalog().regions


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("p5.49xlarge", "p5.48xlarge"),
        ("p5.48large", "p5.48xlarge"),
        ("P5.48xlarge", "p5.48xlarge"),
        ("p4d.xlarge", "p4d.24xlarge"),
        ("g5.xlareg", "g5.xlarge"),
        ("m5large", "m5.large"),
    ],
)
def test_an_instance_type_is_found(typed: str, meant: str) -> None:
    """Slips of the hand lead to the type that was meant, not to another size of it."""
    assert nearest(typed, TYPES) == meant


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("us-esat-1", "us-east-1"),
        ("eu-nort-1", "eu-north-1"),
        ("us_west_2", "us-west-2"),
        ("useast1", "us-east-1"),
    ],
)
def test_a_region_is_found(typed: str, meant: str) -> None:
    """Swapped, dropped and replaced letters all count as one slip."""
    assert nearest(typed, REGIONS) == meant


@pytest.mark.parametrize("typed", ["", "zzz", "atlantis", "é" * 200])
def test_nothing_near_is_nothing(typed: str) -> None:
    """A far-fetched suggestion is worse than none."""
    assert nearest(typed, REGIONS) is None


def test_the_order_of_the_words_does_not_matter() -> None:
    """Messages are compared from run to run, so ties always fall the same way."""
    assert nearest("node", ["nods", "nodd"]) == nearest("node", ["nodd", "nods"]) == "nodd"


@pytest.mark.parametrize(
    ("one", "other", "slips"),
    [
        ("", "", 0),
        ("abc", "abc", 0),
        ("abc", "ab", 1),
        ("abc", "acb", 1),
        ("abc", "xbc", 1),
        ("kitten", "sitting", 3),
    ],
)
def test_slips_are_counted(one: str, other: str, slips: int) -> None:
    """A letter added, dropped or mistyped is one slip, and so are two that swapped places."""
    assert edits(one, other) == edits(other, one) == slips
