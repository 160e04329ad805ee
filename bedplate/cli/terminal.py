"""The operator's terminal as rich writes to it: on stderr, and with no failure where nobody reads any more."""

from typing import IO, cast

from rich.console import Console

from bedplate.cli.output import STDERR


def terminal() -> Console:
    """Return the console on which live lines are shown."""
    return Console(file=cast("IO[str]", STDERR))
