"""What a role has to do on a node, decided from its state: data first, operations from it."""

from collections.abc import Iterable
from dataclasses import dataclass

from pyinfra.api.operation import OperationMeta
from pyinfra.operations import server


@dataclass(frozen=True, slots=True)
class Due:
    """One thing to do: the name that an operator reads, and the commands that do it."""

    name: str
    commands: tuple[str, ...]


def carry_out(dues: Iterable[Due]) -> list[OperationMeta]:
    """Declare one operation for each."""
    return [server.shell(name=due.name, commands=list(due.commands)) for due in dues]
