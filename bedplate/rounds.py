"""Rounds of a controller, in which an error stops nothing; questions to several machines; waits with a time limit."""

import time
import traceback
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from threading import Thread
from typing import TypeVar

from bedplate.errors import BedplateError, PartialError

Answer = TypeVar("Answer")


@dataclass
class Reports:
    """Reports errors of rounds: `log` gets those that the round before did not have."""

    log: Callable[[str], None]
    _before: set[str] = field(default_factory=set)
    _now: set[str] = field(default_factory=set)

    def begin_round(self) -> None:
        """Begin a round."""
        self._before, self._now = self._now, set()

    def __call__(self, error: BedplateError) -> None:
        """Report an error of this round."""
        text = f"{error.what}{f'; {error.fix}' if error.fix else ''}"
        if text not in self._before | self._now:
            self.log(text)
        self._now.add(text)


def run_round(
    act: Callable[[], object],
    report: Callable[[BedplateError], None],
    fatal: type[BedplateError] | tuple[type[BedplateError], ...] = (),
) -> None:
    """Run a round, or a step of it, and report its error. Raises only `fatal` ones, which a new start repairs."""
    try:
        act()
    except fatal:
        raise
    except BedplateError as error:
        report(error)
    except Exception as error:  # noqa: BLE001  a defect, or data that no rule foresaw: without it the rest goes on
        *_, frame = traceback.extract_tb(error.__traceback__)
        place = f"{frame.filename.rpartition('/')[2]}:{frame.lineno}"
        text = f"{type(error).__name__} in {place}: {ascii(str(error))[1:-1][:200]}"
        report(BedplateError(text, fix="report the defect"))


def ask_each(
    names: Iterable[str], ask: Callable[[str], Answer], at_a_time: int
) -> tuple[dict[str, Answer], dict[str, BedplateError]]:
    """Call a function for every name, several in parallel; return the answers and the errors, in the order of names.

    After an interrupt, calls that have begun are finished, because they need what the caller holds; no other begins.
    """
    answers, errors = dict[str, Answer](), dict[str, BedplateError]()
    with ThreadPoolExecutor(max(1, at_a_time)) as pool:
        calls = {name: pool.submit(ask, name) for name in dict.fromkeys(names)}
        try:
            for name, call in calls.items():
                try:
                    answers[name] = call.result()
                except BedplateError as error:
                    errors[name] = error
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
    return answers, errors


LATE = "asked within a time"
"""The name of threads whose answer nobody waits for any more."""


def ask_within(
    asks: Mapping[str, Callable[[], Answer]], seconds: float, began: float | None = None
) -> tuple[dict[str, Answer], dict[str, BedplateError]]:
    """Call functions at the same time; return the answers and the errors, also of those that take too long.

    The time begins at `began` of the monotonic clock, by default now.
    """
    answers, errors = dict[str, Answer](), dict[str, BedplateError]()

    def ask(name: str) -> None:
        run_round(lambda: answers.update({name: asks[name]()}), lambda error: errors.update({name: error}))

    end = (time.monotonic() if began is None else began) + seconds
    threads = [Thread(target=ask, args=(name,), name=LATE, daemon=True) for name in asks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))
    late = PartialError(f"no answer within {seconds:g} s", fix="run the command again")
    # A late thread may still write.
    answers, errors = dict(answers), dict(errors)
    return answers, {name: errors.get(name, late) for name in asks if name not in answers}


def wait(is_done: Callable[[], bool], seconds: float, pause: float, late: BedplateError) -> None:
    """Ask until something is done, with pauses in seconds. Raises `late` if it is not within the time."""
    end = time.monotonic() + seconds
    while not is_done():
        if time.monotonic() > end:
            raise late
        time.sleep(pause)
