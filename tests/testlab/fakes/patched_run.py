"""An order run in a separate process, as in the product: `python -m tests.testlab.fakes.patched_run SECONDS`.

It reads the order from stdin and writes events to stdout, like `roles.run`. Its only role runs one query, which hangs
on a node with the environment variable ASLEEP. SECONDS is the timeout of a query.
"""

from gevent import monkey

monkey.patch_all()

import sys  # noqa: E402  imported after the patch, so that every module gets the patched sockets
from dataclasses import dataclass  # noqa: E402
from typing import ClassVar  # noqa: E402

from pyinfra.context import host  # noqa: E402
from pyinfra.facts.server import Command  # noqa: E402
from pyinfra.operations import server  # noqa: E402

from bedplate.nodes.apply import read_request  # noqa: E402
from roles.base import NO_CHANGES, Changes, Role  # noqa: E402
from roles.engine import connector  # noqa: E402
from roles.engine.node_run import run_request  # noqa: E402


@dataclass(frozen=True, slots=True)
class Asking(Role):
    """One query and one command."""

    name: ClassVar[str] = "asking"

    def install(self) -> None:
        """Run the query, and declare the command."""
        host.get_fact(Command, 'test -z "$ASLEEP" || sleep 600')
        server.shell(name="Run command", commands=["true"])

    def configure(self) -> Changes:
        """Write nothing."""
        return NO_CHANGES

    def activate(self, changes: Changes) -> None:
        """Start nothing."""


if __name__ == "__main__":
    connector.QUERY_SECONDS = float(sys.argv[1])
    run_request(read_request(sys.stdin.buffer), sys.stdin.buffer, sys.stdout, lambda _: (Asking(),))
