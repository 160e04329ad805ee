"""What may go wrong in a way an operator can mend: each class is one exit status of the command line.

Raised where the rule is known, caught once, in `bedplate.cli`. Never holds a secret value.
"""

from typing import ClassVar


class BedplateError(Exception):
    """A fault told to the operator in three lines: what, where, and what to change."""

    exit_code: ClassVar[int] = 1

    def __init__(self, what: str, *, where: str = "", fix: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.fix = fix


class InputError(BedplateError):
    """What was asked for is wrong; nothing was done."""

    exit_code = 2


class ViolationError(BedplateError):
    """A check found a violation, or what exists differs from what was declared."""

    exit_code = 3


class MachineError(BedplateError):
    """This machine lacks something: disk, a right, a program."""

    exit_code = 4


class HeldError(BedplateError):
    """Somebody else holds the lock."""

    exit_code = 5


class PartError(BedplateError):
    """Done in part; the message lists what is missing."""

    exit_code = 6
