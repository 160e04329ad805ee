"""Stands in for Pulumi's engine: the stacks of a fleet folder run in the simulated AWS, and keep their state in memory.

It differs from the engine in what a killed run leaves: a run is whole or did not begin.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pulumi.automation.events import EngineEvent

from bedplate.cli.options import Terminal
from bedplate.deploy.progress import Operation
from bedplate.deploy.state import StackState
from bedplate.errors import PartialError
from bedplate.operate import plan_of
from bedplate.operate.rehearsal import waves
from bedplate.rehearsal.stack import SharedState, destroy, run
from bedplate.rehearsal.state import Entry, Failure, Step
from bedplate.rehearsal.wire import masked


@dataclass
class _Command:
    is_interrupted: bool = False

    def interrupt(self) -> None:
        self.is_interrupted = True


@dataclass
class SimulatedEngine:
    """The engine of one fleet folder; `failing` are the stacks whose next `up` fails before it begins."""

    folder: Path
    world: SharedState
    failing: set[str] = field(default_factory=set)
    command: _Command = field(default_factory=_Command)

    def has_login(self) -> bool:
        """Return True: the world is the backend."""
        return True

    def is_deployed(self, fleet: str) -> bool:
        """Return False: nobody else uses the world."""
        return not fleet

    def prepare_stacks(self, fleet: str, stacks: Iterable[str], provider: str) -> Iterator[str]:
        """Make nothing: a stack exists once it is deployed."""
        del fleet, stacks, provider
        return iter(())

    def remove_damaged_files(self) -> tuple[str, ...]:
        """Return no name: there are no files."""
        return ()

    def resource_counts(self, fleet: str) -> dict[str, int]:
        """Return the number of resources of each stack."""
        snapshots = self.world.snapshots.items()
        return {name: len(snapshot.entries) for name, snapshot in snapshots if name.startswith(f"{fleet}.")}

    def states(self, fleet: str) -> dict[str, StackState]:
        """Return the state of each stack, by its part."""
        names = self.resource_counts(fleet)
        return {name.removeprefix(f"{fleet}."): StackState(self.export_state(name)["deployment"]) for name in names}

    def export_state(self, stack: str) -> dict[str, Any]:
        """Return the state of a stack."""
        snapshot = self.world.snapshots[stack]
        resources = [_resource(entry, snapshot.exports) for entry in snapshot.entries.values()]
        return {"version": 3, "deployment": {"resources": resources}}

    def refresh(self, stack: str, urns: Iterable[str]) -> None:
        """Change nothing: the state is what AWS has."""
        del stack, urns

    def run(self, stack: str, operation: Operation, watch: Callable[[EngineEvent], object]) -> None:
        """Run an operation and report its steps. Raises PartialError if a resource fails."""
        if operation is Operation.CHECK:
            return
        if operation is Operation.UP and stack in self.failing:
            self.failing.remove(stack)
            raise PartialError(f"{stack}: the attachment tgw-attach-1 is in invalid state")
        plan = plan_of(Terminal(self.folder / "fleet.yaml"))
        declared = next((item for wave in waves(plan) for item in wave if item.name == stack), None)
        assert declared, stack

        def report(step: Step) -> None:
            watch(_event(step))

        if operation is Operation.DESTROY:
            done = destroy(declared, self.world, report)
        else:
            done = run(declared, self.world, preview=operation is Operation.PREVIEW, watch=report)
        for failure in done.failures:
            watch(_failure(failure))
        if done.failures:
            raise PartialError(done.failures[0].message)


def _event(step: Step) -> EngineEvent:
    metadata = {"op": step.op.value, "urn": step.urn, "type": step.urn.split("::")[2]}
    return EngineEvent.from_json({"sequence": 0, "timestamp": 0, "resOutputsEvent": {"metadata": metadata}})


def _failure(failure: Failure) -> EngineEvent:
    text = f"{failure.code}: {failure.message}"
    event = {"urn": failure.urn, "severity": "error", "message": text, "color": "never"}
    return EngineEvent.from_json({"sequence": 0, "timestamp": 0, "diagnosticEvent": event})


def _resource(entry: Entry, exports: Any) -> dict[str, Any]:  # noqa: ANN401
    outputs = exports if entry.type == "pulumi:pulumi:Stack" else entry.outputs
    return {
        "urn": entry.urn,
        "type": entry.type,
        "id": entry.ident,
        "inputs": masked(dict(entry.inputs)),
        "outputs": masked(dict(outputs)),
        "parent": entry.parent,
        "provider": entry.provider,
        "dependencies": list(entry.dependencies),
        "protect": entry.protect,
        "external": entry.external,
    }
