"""The operator's workflows: the order of their steps, what they wait for, and what they report.

They take values and an `Operator`, to whom they report their events. `bedplate.cli` prints them; nothing here does.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # slow: some commands need neither Pulumi nor SSH
    from bedplate.deploy.run import Deployment, Watch
    from bedplate.nodes.apply import Event, NodeResult

StackWatch = AbstractContextManager["Watch"]
"""Takes the states of a deployment."""
ApplyWatch = AbstractContextManager[Callable[["Event", "NodeResult"], None]]
"""Takes the events of applies, each with the result of its machine so far."""
AuditWatch = AbstractContextManager[Callable[["Event"], None]]
"""Takes the events of audits."""
RehearsalWatch = AbstractContextManager[Callable[[str, str, bool], None]]
"""Takes the steps of a rehearsal: the stack, what is done there, and whether AWS has the resource."""


@dataclass(frozen=True, slots=True)
class Operator(ABC):
    """Who runs a workflow: their fleet file, how they log in to machines, and how they are told and asked.

    `yes` agrees to every question.
    """

    fleet: Path
    user: str | None = None
    identity: Path | None = None
    ssh_config: Path | None = None
    passphrase_file: Path | None = None
    yes: bool = False

    @abstractmethod
    def show(self, lines: Iterable[str]) -> None:
        """Report lines of the result."""

    @abstractmethod
    def show_changes(self, lines: Iterable[str]) -> None:
        """Report lines of the result that may have replacements and deletions."""

    @abstractmethod
    def notify(self, lines: Iterable[str]) -> None:
        """Report warnings and progress."""

    @abstractmethod
    def confirm(self, question: str) -> None:
        """Raise InputError unless the operator agrees."""

    @abstractmethod
    def ask(self, question: str, default: str | None) -> str | None:
        """Return the operator's answer; the default if there is nobody to ask."""

    @abstractmethod
    def ask_secret(self, prompt: str) -> bytes:
        """Return a secret of the operator. Raises InputError if there is nobody to ask."""

    @abstractmethod
    def stacks(self, deployment: "Deployment") -> StackWatch:
        """Report the states of a deployment."""

    @abstractmethod
    def applies(self, names: Sequence[str]) -> ApplyWatch:
        """Report the events of applies to these machines."""

    @abstractmethod
    def audits(self, names: Sequence[str]) -> AuditWatch:
        """Report the events of audits of these machines."""

    @abstractmethod
    def rehearsal(self, *, in_log: bool) -> RehearsalWatch:
        """Report the steps of a rehearsal; `in_log` also where no table can be shown."""


@dataclass(frozen=True, slots=True)
class Result:
    """What a workflow has found: its lines or one JSON document, the exit status, and notes that come after it."""

    lines: Iterable[str]
    document: object = None
    status: int = 0
    notes: Iterable[str] = ()
