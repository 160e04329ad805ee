"""One stack of a rehearsal: `run` evaluates its program, `destroy` deletes its resources, `graph` lists its state.

A failure of the program becomes a `Failure` of the run, with the line of the program and without secrets.
"""

import gc
import sysconfig
import time
import traceback
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bedplate.errors import BedplateError
from bedplate.rehearsal.deployment import Deployment
from bedplate.rehearsal.monitor import Monitor, Program, RunSettings, evaluate
from bedplate.rehearsal.provider import DefaultProvider, Providers
from bedplate.rehearsal.simulation import Simulation
from bedplate.rehearsal.state import Entry, Failure, Ledger, ResourceError, Snapshot, Step, hidden
from bedplate.rehearsal.wire import masked

# Folders whose stack frames are not the program's: this package, Python and installed packages.
_LIBRARIES = {Path(__file__).parents[1], *(Path(sysconfig.get_path(kind)) for kind in ("stdlib", "purelib"))}
_ORGANIZATION = "organization"


@dataclass(frozen=True, slots=True)
class Stack:
    """A program and the name and configuration of its deployment."""

    name: str
    project: str
    program: Program
    config: Mapping[str, str] = field(default_factory=dict)
    default_provider: DefaultProvider = field(default_factory=lambda: DefaultProvider(None, ("*",)))
    images: Mapping[str, str] | None = field(default_factory=dict)
    """The AMIs of the account before the first run: ids by `region/architecture`; None if they are unknown."""
    image_keys: Mapping[str, str] = field(default_factory=dict)
    """The aliases of the keys that encrypt such AMIs, by id."""
    node_zone: str = ""
    """The domain of the private zone in which the nodes of this stack register their names."""

    @property
    def full_name(self) -> str:
        """The name of the stack in a StackReference."""
        return f"{_ORGANIZATION}/{self.project}/{self.name}"


@dataclass(frozen=True, slots=True)
class Run:
    """The result of one run: its steps, its failures, the state after it, and its time in seconds."""

    steps: tuple[Step, ...]
    failures: tuple[Failure, ...]
    snapshot: Snapshot
    seconds: float


@dataclass(slots=True)
class SharedState:
    """The simulated cloud, and the states and exports of all stacks in it."""

    simulation: Simulation
    ledger: Ledger = field(default_factory=Ledger)
    snapshots: dict[str, Snapshot] = field(default_factory=dict)
    exports: dict[str, Mapping[str, Any]] = field(default_factory=dict)


def run(
    stack: Stack, world: SharedState, *, preview: bool = False, watch: Callable[[Step], None] = lambda _: None
) -> Run:
    """Run the program of a stack and create its resources; a preview only lists the steps."""
    started = time.perf_counter()
    world.simulation.hold_images(stack.images)
    world.simulation.image_keys = stack.image_keys
    deployment = _deployment(stack, world, preview=preview, watch=watch)
    monitor = Monitor(deployment, world.exports)
    try:
        evaluate(stack.program, monitor, RunSettings(stack.project, stack.name, preview, stack.config))
    except Exception as error:  # noqa: BLE001  # a program may raise anything; each exception is a failure of the run
        if monitor.defect is not None:
            raise monitor.defect from None
        deployment.failures.append(_crash(error, deployment.secrets()))
    except SystemExit as error:
        message = hidden(f"the program called sys.exit({error.code!r})", deployment.secrets())
        deployment.failures.append(Failure("", "SystemExit", message))
    if deployment.failures:
        gc.collect()  # now, as the warnings of coroutines of a failed program must not appear in the next run
    deployment.finish()
    return _finish_run(stack, world, deployment, started)


def destroy(stack: Stack, world: SharedState, watch: Callable[[Step], None] = lambda _: None) -> Run:
    """Delete the resources of a stack, except protected ones and what those require."""
    started = time.perf_counter()
    deployment = _deployment(stack, world, preview=False, watch=watch)
    deployment.destroy()
    return _finish_run(stack, world, deployment, started)


def _deployment(stack: Stack, world: SharedState, *, preview: bool, watch: Callable[[Step], None]) -> Deployment:
    return Deployment(
        stack=stack.name,
        project=stack.project,
        before=world.snapshots.get(stack.name, Snapshot()),
        providers=Providers(world.simulation, world.ledger, stack.default_provider),
        preview=preview,
        watch=watch,
    )


def _finish_run(stack: Stack, world: SharedState, deployment: Deployment, started: float) -> Run:
    snapshot = deployment.snapshot()
    if not deployment.preview:
        world.snapshots[stack.name] = snapshot
        if snapshot.exports or not deployment.failures:
            world.exports[stack.full_name] = snapshot.exports
    seconds = time.perf_counter() - started
    return Run(tuple(deployment.steps), tuple(deployment.failures), snapshot, seconds)


def _crash(error: BaseException, secrets: Collection[str]) -> Failure:
    """Return an exception of a program as a failure, with the line of the program that raised it."""
    frames = traceback.extract_tb(error.__traceback__)
    files = [frame for frame in frames if not frame.filename.startswith("<")]
    own = [frame for frame in files if not _LIBRARIES.intersection(Path(frame.filename).parents)]
    where = f" ({own[-1].filename}:{own[-1].lineno})" if own else ""
    if isinstance(error, BedplateError):
        return Failure("", type(error).__name__, "\n".join(filter(None, (error.what, error.fix))))
    if isinstance(error, ResourceError):
        return Failure("", error.code, f"{hidden(error.message, secrets)}{where}", error.key)
    return Failure("", type(error).__name__.lstrip("_"), f"{hidden(str(error), secrets)}{where}")


def graph(entries: Iterable[Entry]) -> list[dict[str, object]]:
    """Return one object for each resource, in the order of creation; property names are camelCase."""
    return [_node(entry) for entry in entries]


def _node(entry: Entry) -> dict[str, object]:
    return {
        "urn": entry.urn,
        "type": entry.type,
        "name": entry.name,
        "parent": entry.parent,
        "custom": entry.custom,
        "inputs": masked(dict(entry.inputs)),
        "id": entry.ident,
        "outputs": masked(dict(entry.outputs)),
        "dependencies": list(entry.dependencies),
        "property_dependencies": {key: list(on) for key, on in entry.property_dependencies.items()},
        "protect": entry.protect,
        "provider": entry.provider,
        "external": entry.external,
    }
