"""The operator's terminal as rich writes to it: on stderr, and with no failure where nobody reads any more."""

import sys
from typing import IO, cast

from rich.console import Console

from bedplate.cli.output import Steady


def terminal() -> Console:
    """Return the console on which live lines are shown."""
    # The stream itself: while lines are live, rich puts one of its own into its place, which leads back here.
    return Console(file=cast("IO[str]", Steady(sys.stderr)))
