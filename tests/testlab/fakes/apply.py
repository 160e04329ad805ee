"""A fake apply: each machine succeeds at once, except those that do not answer."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from bedplate.nodes.apply import ApplyRequest, Event, NodeError, NodeErrorKind, Step, error_event


@dataclass
class FakeApply:
    """Takes the place of `run_apply`; `requests` are those so far, `silent` the machines that do not answer."""

    requests: list[ApplyRequest] = field(default_factory=list)
    silent: set[str] = field(default_factory=set)

    @contextmanager
    def run(self, request: ApplyRequest) -> Iterator["FakeApply"]:
        """Take a request."""
        self.requests.append(request)
        yield self

    def events(self) -> Iterator[Event]:
        """Yield the last event of each machine."""
        for target in self.requests[-1].targets:
            name = target.node.name
            is_silent = name in self.silent
            lost = NodeError(NodeErrorKind.UNREACHED, "no answer", "check the VPN connection")
            yield error_event(name, lost) if is_silent else Event(name, Step.DONE)

    @property
    def machines(self) -> list[str]:
        """The machines of the last request."""
        return [target.node.name for target in self.requests[-1].targets]
