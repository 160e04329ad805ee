"""Errors that an operator can fix: each class has its own exit code.

`bedplate.cli` catches them and prints three lines. No error contains a secret.
"""

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
