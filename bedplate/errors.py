"""Errors that an operator can fix, each with its own exit code, and the nearest valid word for a fix.

`bedplate.cli` catches the errors and prints three lines. No error contains a secret.
"""

from collections.abc import Collection, Iterable
from difflib import get_close_matches
from functools import lru_cache
from typing import ClassVar


class BedplateError(Exception):
    """An error in three lines: the problem, its place, and the fix."""

    exit_code: ClassVar[int] = 1

    def __init__(self, what: str, *, where: str = "", fix: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.fix = fix
        if fix:
            # Python prints notes after the message, also in the process of a stack's program.
            self.add_note(f"fix: {fix}")


class InputError(BedplateError):
    """The input is invalid; the command did nothing."""

    exit_code = 2


class ViolationError(BedplateError):
    """A check found a violation, or the deployed resources differ from the declared ones."""

    exit_code = 3


class MachineError(BedplateError):
    """This machine lacks disk space, a permission or a program."""

    exit_code = 4


class HeldError(BedplateError):
    """Another process holds the lock."""

    exit_code = 5


class PartialError(BedplateError):
    """The command completed partially; the message lists the rest."""

    exit_code = 6


def worst(statuses: Collection[int]) -> int:
    """Return the exit status of several parts: 3 for a violation in any, else that of what was not checked."""
    return ViolationError.exit_code if ViolationError.exit_code in statuses else max(statuses)


def error_lines(*errors: BedplateError) -> tuple[str, ...]:
    """Return the message of each error, its place and its fix."""
    labels = ("error: ", "  in   ", "  fix  ")
    parts = (part for error in errors for part in zip(labels, (error.what, error.where, error.fix), strict=True))
    return tuple(label + text for label, text in parts if text)


_SHORTLIST = 12


def nearest(word: str, words: Iterable[str]) -> str | None:
    """Return the most similar of `words`, or None; case and order do not matter."""
    by_lower_case = {other.lower(): other for other in words}
    match = _nearest(word.lower(), tuple(sorted(by_lower_case)))
    return by_lower_case[match] if match else None


def nearest_fix(word: str, words: Iterable[str]) -> str:
    """Return the fix for an unknown word: the most similar of `words`, else all of them."""
    names = sorted(words)
    near = nearest(word, names)
    return f"write {near}" if near else f"write one of {', '.join(names)}"


@lru_cache(maxsize=256)
def _nearest(word: str, words: tuple[str, ...]) -> str | None:
    # difflib alone ranks p5.4xlarge above p5.48xlarge for p5.49xlarge, so it only selects candidates. Of equally good
    # ones the longest wins: people omit letters more often than they add them.
    candidates = get_close_matches(word, words, n=_SHORTLIST)
    return min(candidates, key=lambda other: (edits(word, other), -len(other), other), default=None)


def edits(word: str, other: str) -> int:
    """Return the edit distance of two words: letters added, removed or replaced, and neighbours swapped."""
    before: list[int] = []
    row = list(range(len(other) + 1))
    for i, letter in enumerate(word, start=1):
        above, before, row = before, row, [i]
        for j, against in enumerate(other, start=1):
            row.append(min(before[j] + 1, row[-1] + 1, before[j - 1] + (letter != against)))
            if i > 1 and j > 1 and (letter, against) == (other[j - 2], word[i - 2]):
                row[j] = min(row[j], above[j - 2] + 1)
    return row[-1]
