"""A Pulumi program evaluated inside this process, by the SDK's own means, without the command line.

Every run has its own event loop, context and bookkeeping, so that runs can follow one another and, in threads,
stand side by side.
"""

import asyncio
import gc
import os
import threading
import warnings
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

from pulumi.runtime import set_all_config, set_mocks
from pulumi.runtime.settings import ROOT, SETTINGS
from pulumi.runtime.stack import run_in_stack

from bedplate.rehearsal.monitor import Monitor
from bedplate.rehearsal.pending import Pending

_PLACEHOLDER: Final[Any] = object()
# Seconds in which a program that waits for nothing but itself must move on.
_PATIENCE: Final = 0.5
Program = Callable[[], None]


@dataclass(frozen=True, slots=True)
class Setting:
    """Under which names, and with which configuration, a program is run."""

    project: str
    stack: str
    preview: bool
    config: Mapping[str, str]


def evaluate(program: Program, monitor: Monitor, setting: Setting) -> None:
    """Run a program to its end against a monitor; raise what the program raises."""

    async def main() -> None:
        # A failed resource leaves futures that nobody reads; the monitor has told of it already.
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _loop, _told: None)
        # The SDK calls the monitor from the loop's executor; the simulation takes one call at a time anyway.
        loop.set_default_executor(ThreadPoolExecutor(1))
        _settle(monitor, setting)
        try:
            await run_in_stack(program)
        except BaseException:
            # The SDK stops waiting at the first exception; the engine makes what was declared all the same.
            await _quiet()
            raise

    # What a failing program leaves half done; its failure is told.
    warnings.filterwarnings("ignore", r"coroutine 'Output\.\w+' was never awaited", RuntimeWarning)
    # An Output inside an f-string becomes an error instead of a message in the place of the value.
    os.environ["PULUMI_ERROR_OUTPUT_STRING"] = "true"
    asyncio.run(main())


async def _quiet() -> None:
    """Wait until neither the program nor the monitor has anything left to do."""
    loop, own = asyncio.get_running_loop(), {asyncio.current_task()}
    while waiting := asyncio.all_tasks() - own:
        # Comes after every call that the monitor has been sent so far.
        await loop.run_in_executor(None, lambda: None)
        done, _ = await asyncio.wait(waiting, timeout=_PATIENCE, return_when=asyncio.FIRST_COMPLETED)
        if not done:
            return


def tidy() -> None:
    """Drop what a failed program left half done now: found later, it would be taken for another's."""
    gc.collect()


def _settle(monitor: Monitor, setting: Setting) -> None:
    set_all_config(dict(setting.config), [])
    # set_mocks leaves these two as they are, one for the whole process: a second run would wait for the first's tasks.
    SETTINGS.outputs = Pending()
    SETTINGS.lock = threading.Lock()
    # set_mocks makes a root stack where there is none, and there may be only one: that of run_in_stack.
    ROOT.set(_PLACEHOLDER)
    set_mocks(
        monitor.mocks,
        project=setting.project,
        stack=setting.stack,
        preview=setting.preview,
        monitor=monitor,
        organization="organization",
    )
    ROOT.set(None)
