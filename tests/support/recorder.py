"""A node in memory: runs stages of roles in pyinfra's own machinery, and tells what each operation did.

Planning comes first, as in pyinfra: every operation is asked whether it would change anything. Then each is run in its
order: conditions (`_if`) are asked, uploads and commands about files take effect on the disk in memory, everything else
is told and does nothing. So packages are not installed and services not started: a real node proves those.
"""

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from inspect import getclosurevars, signature
from pathlib import Path
from typing import IO, Any, cast

from pyinfra.api.command import FileUploadCommand, PyinfraCommand, StringCommand
from pyinfra.api.config import Config
from pyinfra.api.facts import FactBase, ShortFactBase
from pyinfra.api.host import Host
from pyinfra.api.inventory import Inventory
from pyinfra.api.state import State, StateOperationHostData
from pyinfra.connectors.fake import FakeConnector
from pyinfra.connectors.util import CommandOutput
from pyinfra.context import ctx_config, ctx_host, ctx_state

from roles.base import Role
from roles.stages import deploy
from tests.support.disk import Disk, Entry
from tests.support.recorded import Recorded, bound

_NAME = "recorded"


@dataclass(frozen=True, slots=True)
class Step:
    """An operation: `kind` is pyinfra's name of it, `files.put`; `expected` is whether planning foresaw a change."""

    kind: str
    name: str
    arguments: Mapping[str, Any]
    expected: bool
    commands: tuple[str, ...]

    @property
    def changed(self) -> bool:
        """Say whether it did anything."""
        return bool(self.commands)


@dataclass(frozen=True, slots=True)
class Recorder:
    """A node that answers from a table and a disk, and refuses any other question."""

    answers: Recorded
    disk: Disk = field(default_factory=lambda: Disk.of({}))

    def play(self, *roles: Role, stages: Sequence[str] | None = None) -> "Played":
        """Run the roles' stages, all by default."""
        with _acting(self) as (state, host):
            deploy(roles, stages=stages)
            state.is_executing = True
            steps = tuple(_run(host, state, each) for each in host.op_hash_order)
        return Played(steps, self.disk)


@dataclass(frozen=True, slots=True)
class Played:
    """What happened on the node."""

    steps: tuple[Step, ...]
    disk: Disk

    @property
    def names(self) -> list[str]:
        """Return the names of the operations, in order."""
        return [step.name for step in self.steps]

    @property
    def kinds(self) -> list[str]:
        """Return pyinfra's names of the operations, in order."""
        return [step.kind for step in self.steps]

    @property
    def changes(self) -> list[str]:
        """Return the names of the operations that changed something."""
        return [step.name for step in self.steps if step.changed]

    @property
    def commands(self) -> list[str]:
        """Return every command, in order."""
        return [command for step in self.steps for command in step.commands]

    def step(self, name: str) -> Step:
        """Return the one operation of that name."""
        found = [step for step in self.steps if step.name == name]
        assert len(found) == 1, f"{len(found)} operations are called {name!r}; there are {self.names}"
        return found[0]

    def written(self, path: str) -> str:
        """Return the text of a file as it is now."""
        return self.disk.read(path)


class _RecordedHost(Host):
    """A host of pyinfra's that is asked nothing over a connection."""

    recorder: Recorder

    def get_fact(self, name_or_cls: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401  # any fact, of any type
        if issubclass(name_or_cls, ShortFactBase):
            return name_or_cls().process_data(self.get_fact(name_or_cls.fact, *args, **kwargs))
        fact: FactBase[Any] = name_or_cls()
        arguments = bound(fact, args, kwargs)
        if self.recorder.disk.answers(name_or_cls):
            return self.recorder.disk.answer(name_or_cls, arguments)
        return self.recorder.answers.ask(fact, arguments)


@contextmanager
def _acting(recorder: Recorder) -> Iterator[tuple[State, _RecordedHost]]:
    inventory = Inventory(([_NAME], {}))  # type: ignore[no-untyped-call]
    host = _RecordedHost(_NAME, inventory=inventory, groups=[], connector_cls=FakeConnector)
    host.recorder = recorder
    inventory.hosts = {_NAME: host}
    state = State(inventory, Config())  # type: ignore[no-untyped-call]
    state.activate_host(host)
    contexts = ((ctx_state, state), (ctx_host, host), (ctx_config, state.config))
    for context, value in contexts:
        context.set(value)  # type: ignore[no-untyped-call]
    try:
        yield state, host
    finally:
        for context, _ in contexts:
            context.reset()


def _run(host: _RecordedHost, state: State, operation: str) -> Step:
    data = state.get_op_data_for_host(host, operation)
    expected = data.operation_meta.will_change
    # Closed while the node is still here: a generator that a refusal leaves open would look for it later.
    with closing(cast("Generator[PyinfraCommand, None, None]", data.command_generator())) as running:
        commands = tuple(_told(host.recorder.disk, each) for each in running)
    data.operation_meta.set_complete(success=True, commands=list(commands), combined_output=CommandOutput([]))
    (name,) = state.get_op_meta(operation).names
    kind, arguments = _asked(data)
    return Step(kind, name, arguments, expected, commands)


def _asked(data: StateOperationHostData) -> tuple[str, Mapping[str, Any]]:
    """Return an operation's name and arguments, which pyinfra keeps in a closure alone."""
    kept = getclosurevars(data.command_generator).nonlocals
    arguments = signature(kept["func"]).bind(*kept["args"], **kept["kwargs"]).arguments
    return f"{kept['func'].__module__.rpartition('.')[2]}.{kept['func'].__name__}", arguments


def _told(disk: Disk, command: PyinfraCommand) -> str:
    """Let a command take effect, and return it as a line."""
    if isinstance(command, FileUploadCommand):
        before = disk.entries.get(command.dest, Entry())
        disk.write(command.dest, replace(before, content=_text(command.src)))
        return f"upload {command.dest}"
    if isinstance(command, StringCommand):
        disk.take(str(command), str(command.connector_arguments.get("_stdin") or ""))
        return str(command)
    return repr(command)


def _text(source: str | IO[Any]) -> str:
    if isinstance(source, str | Path):
        return Path(source).read_text(encoding="utf-8")
    source.seek(0)
    content = source.read()
    return content.decode() if isinstance(content, bytes) else content
