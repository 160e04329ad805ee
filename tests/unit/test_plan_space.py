"""Free address space."""

from ipaddress import IPv4Network

import pytest

from bedplate.plan.space import Space, Span, span_of

ALL = span_of(IPv4Network("0.0.0.0/0"))
TEN = span_of(IPv4Network("10.0.0.0/24"))


def space(*taken: str) -> Space:
    """Return a space with those blocks taken."""
    return Space(IPv4Network(block) for block in taken)


@pytest.mark.parametrize(
    ("taken", "lowest", "highest"),
    [
        ((), "10.0.0.0/26", "10.0.0.192/26"),
        (("10.0.0.0/26",), "10.0.0.64/26", "10.0.0.192/26"),
        (("10.0.0.1/32", "10.0.0.255/32"), "10.0.0.64/26", "10.0.0.128/26"),
        (("10.0.0.0/26", "10.0.0.128/25"), "10.0.0.64/26", "10.0.0.64/26"),
        (("0.0.0.0/5", "10.0.0.64/27", "10.0.1.0/24"), "10.0.0.0/26", "10.0.0.192/26"),
        (("10.0.0.0/8",), None, None),
        (("10.0.0.32/32", "10.0.0.96/32", "10.0.0.160/32", "10.0.0.224/32"), None, None),
    ],
)
def test_the_first_aligned_block_that_is_free_is_found(
    taken: tuple[str, ...], lowest: str | None, highest: str | None
) -> None:
    """From either end, whatever lies before, across or behind the window."""
    within = space(*taken)

    found = (within.lowest(26, TEN), within.highest(26, TEN))

    assert found == tuple(IPv4Network(block) if block else None for block in (lowest, highest))


def test_neighbours_become_one_interval() -> None:
    """Many blocks in a row are one stretch, so looking past them costs one step."""
    taken = space(*(f"10.{number}.0.0/16" for number in range(256)))

    assert list(taken.gaps(span_of(IPv4Network("8.0.0.0/6")))) == [
        Span(8 << 24, 10 << 24),
        Span(11 << 24, 12 << 24),
    ]


def test_taking_twice_is_taking_once() -> None:
    """Overlapping blocks count once."""
    taken = space("10.0.0.0/25", "10.0.0.0/24", "10.0.0.128/32")

    assert taken.free(ALL) == ALL.size - 256


def test_an_empty_window_holds_nothing() -> None:
    """The last eighth of a tiny supernet may be empty."""
    assert space().lowest(32, Span(5, 5)) is None
    assert space().free(Span(5, 4)) == 0
