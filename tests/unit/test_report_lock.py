"""How the difference between plan and lock is told."""

from ipaddress import IPv4Network

import pytest

from bedplate.report.lock import named, roots

BLOCK = IPv4Network("10.64.0.0/16")


@pytest.mark.parametrize(
    ("paths", "told"),
    [
        (("region/a", "region/a/zone/a1/edge", "pods"), ("region/a", "pods")),
        (("region/a/zone/a1/edge", "region/a/zone/a1/nodes"), ("region/a/zone/a1/edge", "region/a/zone/a1/nodes")),
        ((), ()),
    ],
)
def test_a_subnet_is_told_only_without_its_region(paths: tuple[str, ...], told: tuple[str, ...]) -> None:
    """A new region is one piece of news; a new zone in an old region is one too."""
    assert roots(dict.fromkeys(paths, BLOCK)) == told


@pytest.mark.parametrize(
    ("names", "told"),
    [
        (("a",), "1 block (a)"),
        (("a", "b"), "2 blocks (a, 1 more)"),
        (("a", "b", "c", "d"), "4 blocks (a, 3 more)"),
    ],
)
def test_the_first_is_named(names: tuple[str, ...], told: str) -> None:
    """Enough to see what it is about, and never more than a line."""
    assert named(names, "block") == told
