"""What the keeper cannot do, told in a line and an exit status."""

from typing import ClassVar


class Trouble(Exception):
    """Something that whoever asked can mend."""

    status: ClassVar[int] = 1


class Refusal(Trouble):
    """What was sent is not taken; nothing was changed."""

    status: ClassVar[int] = 2


class Unfinished(Trouble):
    """It was taken, and a daemon did not answer: ask again."""

    status: ClassVar[int] = 6
