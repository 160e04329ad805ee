"""An operator of workflows in memory: keeps what is reported, and declines every question."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from bedplate.deploy.run import Deployment, Watch
from bedplate.errors import InputError
from bedplate.nodes.apply import Event, NodeResult
from bedplate.operate import Operator, Views


@dataclass(frozen=True, slots=True)
class Recorder(Operator, Views):
    """The lines of results and of notes, and the events of machines."""

    shown: list[str] = field(default_factory=list)
    noted: list[str] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)

    def show(self, lines: Iterable[str]) -> None:
        """Keep lines of the result."""
        self.shown.extend(lines)

    def show_changes(self, lines: Iterable[str]) -> None:
        """Keep lines of the result."""
        self.shown.extend(lines)

    def notify(self, lines: Iterable[str]) -> None:
        """Keep notes."""
        self.noted.extend(lines)

    def confirm(self, question: str, details: Sequence[str] = ()) -> None:
        """Decline, unless the operator agrees to everything."""
        del details
        if not self.yes:
            raise InputError(question)

    def ask(self, question: str, default: str | None) -> str | None:
        """Answer by the default."""
        del question
        return default

    def ask_secret(self, prompt: str) -> bytes:
        """Refuse: a test has no secret."""
        raise InputError(prompt)

    @property
    def views(self) -> Views:
        """Keep the events of machines."""
        return self

    @contextmanager
    def stacks(self, deployment: Deployment) -> Iterator[Watch]:
        """Show nothing."""
        del deployment
        yield lambda _states: None

    @contextmanager
    def applies(self, names: Sequence[str]) -> Iterator[Callable[[Event, NodeResult], None]]:
        """Keep the events of applies."""
        del names
        yield lambda event, _result: self.events.append(event)

    @contextmanager
    def audits(self, names: Sequence[str]) -> Iterator[Callable[[Event], None]]:
        """Keep the events of audits."""
        del names
        yield self.events.append

    @contextmanager
    def rehearsal(self, *, in_log: bool) -> Iterator[Callable[[str, str, bool], None]]:
        """Show nothing."""
        del in_log
        yield lambda _stack, _doing, _is_in_cloud: None
