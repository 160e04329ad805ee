"""What a program waits for is waited for once."""

import asyncio

import pytest

from bedplate.rehearsal.pending import Pending


async def _after(turns: int, told: list[int]) -> None:
    for _ in range(turns):
        await asyncio.sleep(0)
    told.append(turns)


async def _failing() -> None:
    await asyncio.sleep(0)
    raise ValueError("the first to fail")


def test_one_task_stands_for_all() -> None:
    """It ends when the last of them has ended."""
    told: list[int] = []

    async def main() -> None:
        pending = Pending(asyncio.ensure_future(_after(turns, told)) for turns in (3, 1, 2))
        (one,) = list(pending)
        await one

    asyncio.run(main())

    assert told == [1, 2, 3]


def test_the_first_failure_is_raised() -> None:
    """Whatever else is still under way."""

    async def main() -> None:
        pending = Pending((asyncio.ensure_future(_after(50, [])), asyncio.ensure_future(_failing())))
        (one,) = list(pending)
        await one

    with pytest.raises(ValueError, match="the first to fail"):
        asyncio.run(main())


def test_nothing_is_waited_for_where_nothing_is_pending() -> None:
    """An empty set yields no task."""
    assert list(Pending()) == []
