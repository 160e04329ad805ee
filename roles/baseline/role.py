"""The role `baseline`."""

from dataclasses import dataclass
from typing import ClassVar

from pyinfra.operations import server

from roles.base import NO_CHANGES, Changes, Role


@dataclass(frozen=True, slots=True)
class Baseline(Role):
    """The ground of every node."""

    host: str
    name: ClassVar[str] = "baseline"

    def install(self) -> None:
        """Install nothing yet."""

    def configure(self) -> Changes:
        """Write the node's name."""
        return NO_CHANGES

    def activate(self, changes: Changes) -> None:  # noqa: ARG002  # the form of a stage
        """Take the name at once."""
        server.hostname(name="Host name", hostname=self.host)
