"""What a program still waits for, handed to the SDK as one task.

The SDK waits for the first of all its outstanding tasks, over and over, and copies them all each time: the time
grows with the square of the resources. One task that stands for all of them ends when the last does, or raises as
soon as one does, which is all that the SDK asks of them.
"""

import asyncio
from collections.abc import Iterator
from typing import Any

Task = asyncio.Task[Any]


class Pending(set[Task]):
    """The set of tasks in which the SDK keeps what it waits for; walking it yields one task for all."""

    def __iter__(self) -> Iterator[Task]:
        """Yield a task that ends with the last of the set; nothing where the set is empty."""
        tasks = frozenset(super().__iter__())
        if tasks:
            yield asyncio.ensure_future(_all(tasks))


async def _all(tasks: frozenset[Task]) -> None:
    """Wait for all tasks; raise what the first to fail raises."""
    done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
    for task in done:
        task.result()
