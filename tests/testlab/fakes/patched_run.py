"""An order carried out in a process of its own, as the product does: `python -m tests.testlab.fakes.patched_run SECONDS`.

The order comes on its input and events leave by its output, as those of `roles.run`; its only role asks the node one
question, which takes for ever where the node's environment says ASLEEP. A question may take SECONDS.
"""

from gevent import monkey

monkey.patch_all()

import sys  # noqa: E402  everything that is loaded from here on shall find the patched sockets
from dataclasses import dataclass  # noqa: E402
from typing import ClassVar  # noqa: E402

from pyinfra.context import host  # noqa: E402
from pyinfra.facts.server import Command  # noqa: E402
from pyinfra.operations import server  # noqa: E402

from bedplate.nodes.apply import read_order  # noqa: E402
from roles.base import NO_CHANGES, Changes, Role  # noqa: E402
from roles.engine import connector  # noqa: E402
from roles.engine.work import work_through  # noqa: E402


@dataclass(frozen=True, slots=True)
class Asking(Role):
    """One question, and one command."""

    name: ClassVar[str] = "asking"

    def install(self) -> None:
        """Ask, and do something."""
        host.get_fact(Command, 'test -z "$ASLEEP" || sleep 600')
        server.shell(name="Something", commands=["true"])

    def configure(self) -> Changes:
        """Write nothing."""
        return NO_CHANGES

    def activate(self, changes: Changes) -> None:
        """Start nothing."""


if __name__ == "__main__":
    connector.QUESTION_SECONDS = float(sys.argv[1])
    work_through(read_order(sys.stdin.buffer), sys.stdin.buffer, sys.stdout, lambda _: (Asking(),))
