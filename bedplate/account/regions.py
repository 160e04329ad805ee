"""The same question to many regions at a time, and what of it was answered."""

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import groupby
from typing import Generic, TypeVar

from bedplate.errors import BedplateError

_AT_A_TIME = 8

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Answers(Generic[Answer]):
    """What each region answered, and why the others did not; both in the order in which they were asked."""

    given: Mapping[str, Answer]
    failures: Mapping[str, BedplateError]


def ask_regions(regions: Iterable[str], ask: Callable[[str], Answer]) -> Answers[Answer]:
    """Ask every region, a few at a time; a region that fails keeps none from answering."""
    names = tuple(dict.fromkeys(regions))
    with ThreadPoolExecutor(_AT_A_TIME) as pool:
        told = dict(zip(names, pool.map(lambda name: _asked(ask, name), names), strict=True))
    return Answers(
        given={name: one.answer for name, one in told.items() if isinstance(one, _Given)},
        failures={name: one for name, one in told.items() if isinstance(one, BedplateError)},
    )


def every_answer(answers: Answers[Answer], undone: str) -> Mapping[str, Answer]:
    """Return the answers where all regions gave one; else raise the first failure's error, naming every region.

    `undone` says what was therefore not done.
    """
    if not answers.failures:
        return answers.given
    first = next(iter(answers.failures.values()))
    raise type(first)(f"{undone}: {'; '.join(failure_lines(answers.failures))}", fix=first.fix)


def failure_lines(failures: Mapping[str, BedplateError]) -> tuple[str, ...]:
    """Return `us-west-2, us-east-1: what happened`, a line a reason."""
    ordered = sorted(failures, key=lambda name: failures[name].what)
    alike = groupby(ordered, key=lambda name: failures[name].what)
    return tuple(f"{', '.join(sorted(names))}: {what}" for what, names in alike)


@dataclass(frozen=True, slots=True)
class _Given(Generic[Answer]):
    answer: Answer


def _asked(ask: Callable[[str], Answer], region: str) -> _Given[Answer] | BedplateError:
    try:
        return _Given(ask(region))
    except BedplateError as error:
        return error
