"""A node in memory, on which unit tests run roles: recorded facts, a disk in memory, and the operations of a run.

`tests/data/facts/debian-12.json` was recorded in a Debian 12 container, except facts that a container lacks: mounts,
kernel version and modules, time zone, apt sources. `ubuntu-24.04.json` was written by hand; its package versions are
invented. A key is the fact's name, with arguments if the answer depends on them; a value is the output of the fact's
command as a list of lines, or null for no output. A fact without a recorded answer is an error.
"""

import hashlib
import inspect
import json
import posixpath
import shlex
import subprocess
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cache
from inspect import getclosurevars, signature
from pathlib import Path
from types import MappingProxyType
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
from pyinfra.facts import files

from roles.base import FileSignatures, Role, deploy

FACTS = Path(__file__).parents[2] / "data" / "facts"
SYSTEMS = ("debian-12", "ubuntu-24.04")
Lines = tuple[str, ...] | None


class UnexpectedFactError(AssertionError):
    """A role read a fact that the test did not expect."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """The recorded facts of a distribution."""

    name: str
    answers: Mapping[str, Lines]

    def but(self, answers: Mapping[str, Lines]) -> "Recorded":
        """Return the same facts with changed or additional answers."""
        return replace(self, answers=MappingProxyType({**self.answers, **answers}))

    def read(self, fact: FactBase[Any], arguments: Mapping[str, object]) -> object:
        """Return the processed value of a fact."""
        lines = self._lines(fact.name, arguments)
        if callable(fact.command):  # some facts keep the arguments of `command` for `process`
            fact.command(**arguments)
        return fact.process(list(lines)) if lines else fact.default()

    def _lines(self, name: str, arguments: Mapping[str, object]) -> Lines:
        exact = fact_key(name, arguments)
        for key in (exact, name):
            if key in self.answers:
                return self.answers[key]
        raise UnexpectedFactError(f"no recorded answer for fact {exact} of {self.name}")


def fact_key(name: str, arguments: Mapping[str, object]) -> str:
    """Return the key of a fact: `server.Which(command=swapon)`."""
    values = ", ".join(f"{key}={value}" for key, value in arguments.items() if value not in (None, False))
    return f"{name}({values})" if values else name


def bind_arguments(fact: FactBase[Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return a fact's arguments by name, without pyinfra's global arguments."""
    own = {key: value for key, value in kwargs.items() if not key.startswith("_")}
    return dict(inspect.signature(fact.command).bind(*args, **own).arguments) if args or own else {}


@cache
def recorded(name: str) -> Recorded:
    """Return the facts of a distribution, `debian-12` or `ubuntu-24.04`."""
    table = json.loads((FACTS / f"{name}.json").read_text())
    answers = {key: None if lines is None else tuple(lines) for key, lines in table.items()}
    return Recorded(name, MappingProxyType(answers))


_RECORDED = datetime(2026, 11, 21, tzinfo=UTC).replace(tzinfo=None)
_FACT_OF = {files.File: "file", files.Directory: "directory", files.Link: "link", files.Socket: "socket"}
_DIGEST_OF = {files.Sha1File: hashlib.sha1, files.Md5File: hashlib.md5, files.Sha256File: hashlib.sha256}


@dataclass(frozen=True, slots=True)
class Entry:
    """A file, folder or link; `content` is a file's text or a link's target."""

    kind: str = "file"
    content: str = ""
    mode: int = 644
    user: str = "root"
    group: str = "root"


FOLDER = Entry("directory", mode=755)
SYSTEM = (
    "/",
    "/etc",
    "/opt",
    "/root",
    "/run",
    "/srv",
    "/tmp",  # noqa: S108  # every system has it
    "/usr",
    "/usr/bin",
    "/usr/local/bin",
    "/usr/sbin",
    "/var",
)


@dataclass(slots=True)
class Disk:
    """A tree of files."""

    entries: dict[str, Entry] = field(default_factory=dict)

    @classmethod
    def of(cls, texts: Mapping[str, str | Entry]) -> "Disk":
        """Return a disk with the system folders and these files, by path."""
        disk = cls(dict.fromkeys(SYSTEM, FOLDER))
        for path, text in texts.items():
            disk.write(path, text if isinstance(text, Entry) else Entry(content=text))
        return disk

    def write(self, path: str, entry: Entry) -> None:
        """Write an entry, and create its parent folders."""
        self._create_folders(posixpath.dirname(path))
        self.entries[path] = entry

    def read(self, path: str) -> str:
        """Return the text of a file."""
        return self.entries[path].content

    def answers(self, fact: type) -> bool:
        """Return whether a fact is about files."""
        return fact in _FACT_OF or fact in _DIGEST_OF or fact in {files.FileContents, files.FindInFile, FileSignatures}

    def answer(self, fact: type, arguments: Mapping[str, Any]) -> object:
        """Return the processed value of a fact about files."""
        if fact is FileSignatures:
            return {path: _signature(self.entries[path]) for path in arguments["paths"] if self._has_signature(path)}
        entry = self.entries.get(arguments["path"].rstrip("/") or "/")
        if fact in _FACT_OF:
            return _described(entry, _FACT_OF[fact])
        text = entry.content if entry and entry.kind == "file" else None
        if text is None:
            return None
        if fact in _DIGEST_OF:
            return _DIGEST_OF[fact](text.encode(), usedforsecurity=False).hexdigest()
        return _grep(text, arguments["pattern"]) if fact is files.FindInFile else text.splitlines()

    def run(self, command: str, stdin: str = "") -> None:
        """Carry out a shell command that changes files, if this disk knows it; `stdin` is its standard input.

        It always succeeds: the part after `||` is ignored.
        """
        parts = command.partition(" || ")[0].split(" && ")
        if all(part.split(" ", 1)[0] in _COMMANDS for part in parts):
            for verb, *words in map(shlex.split, parts):
                plain = [word for word in words if not word.startswith("-")]
                _COMMANDS[verb](self, [*plain, stdin] if verb == "head" else plain)

    def _has_signature(self, path: str) -> bool:
        return path in self.entries and self.entries[path].kind in {"file", "link"}

    def _create_folders(self, path: str) -> None:
        while path not in self.entries:
            self.entries[path] = FOLDER
            path = posixpath.dirname(path)

    def _mkdir(self, paths: list[str]) -> None:
        for path in paths:
            self._create_folders(path.rstrip("/"))

    def _chmod(self, words: list[str]) -> None:
        mode, *paths = words
        for path in paths:
            self.entries[path] = replace(self.entries[path], mode=int(mode))

    def _chown(self, words: list[str]) -> None:
        user, _, group = words[0].partition(":")
        for path in words[1:]:
            old = self.entries[path]
            self.entries[path] = replace(old, user=user or old.user, group=group or old.group)

    def _chgrp(self, words: list[str]) -> None:
        self._chown([f":{words[0]}", *words[1:]])

    def _rm(self, paths: list[str]) -> None:
        for path in paths:
            for name in [name for name in self.entries if name == path or name.startswith(f"{path}/")]:
                del self.entries[name]

    def _ln(self, words: list[str]) -> None:
        target, path = words
        self.write(path, Entry("link", target, mode=777))

    def _mv(self, words: list[str]) -> None:
        source, target = words
        self.write(target, self.entries.pop(source))

    def _install(self, words: list[str]) -> None:
        *_, mode, _, path = words
        self.write(path, Entry(mode=int(mode)))

    def _head(self, words: list[str]) -> None:
        count, _, path, stdin = words
        text = stdin.encode()[: int(count)].decode()
        self.entries[path] = replace(self.entries[path], content=text)

    def _sync(self, paths: list[str]) -> None:
        assert all(path in self.entries for path in paths)

    def _touch(self, paths: list[str]) -> None:
        for path in paths:
            self.write(path, self.entries.get(path, Entry()))


_COMMANDS: Mapping[str, Callable[[Disk, list[str]], None]] = {
    "mkdir": Disk._mkdir,  # noqa: SLF001  # this table is part of the class
    "chmod": Disk._chmod,  # noqa: SLF001
    "chown": Disk._chown,  # noqa: SLF001
    "chgrp": Disk._chgrp,  # noqa: SLF001
    "rm": Disk._rm,  # noqa: SLF001
    "mv": Disk._mv,  # noqa: SLF001
    "install": Disk._install,  # noqa: SLF001
    "head": Disk._head,  # noqa: SLF001
    "sync": Disk._sync,  # noqa: SLF001
    "ln": Disk._ln,  # noqa: SLF001
    "touch": Disk._touch,  # noqa: SLF001
}


def _described(entry: Entry | None, kind: str) -> dict[str, object] | bool | None:
    if entry is None:
        return None
    if entry.kind != kind:
        return False
    times = dict.fromkeys(("atime", "mtime", "ctime"), _RECORDED)
    link = {"link_target": entry.content} if kind == "link" else {}
    return {"user": entry.user, "group": entry.group, "mode": entry.mode, "size": len(entry.content), **times, **link}


def _signature(entry: Entry) -> str:
    if entry.kind == "link":
        return "symlink"
    return f"{entry.mode} {entry.user}:{entry.group} {hashlib.sha256(entry.content.encode()).hexdigest()}"


def _grep(text: str, pattern: str) -> list[str]:
    """Return the lines that match, according to grep."""
    process = subprocess.run(["grep", "-e", pattern], input=text, capture_output=True, text=True, check=False)
    return process.stdout.splitlines()


_NAME = "recorded"


@dataclass(frozen=True, slots=True)
class Step:
    """An operation; `kind` is pyinfra's name of it (`files.put`), `expected` whether the dry run predicted a change."""

    kind: str
    name: str
    arguments: Mapping[str, Any]
    expected: bool
    commands: tuple[str, ...]

    @property
    def changed(self) -> bool:
        """Return whether it ran any command."""
        return bool(self.commands)


@dataclass(frozen=True, slots=True)
class Recorder:
    """A node with recorded facts and a disk; any other fact is an error."""

    answers: Recorded
    disk: Disk = field(default_factory=lambda: Disk.of({}))

    def play(self, *roles: Role, stages: Sequence[str] | None = None) -> "Played":
        """Run the stages of roles, all by default."""
        with _pyinfra_context(self) as (state, host):
            deploy(roles, stages=stages)
            state.is_executing = True
            steps = tuple(_run(host, state, key) for key in host.op_hash_order)
        return Played(steps, self.disk)


@dataclass(frozen=True, slots=True)
class Played:
    """The operations of a run, and the disk after it."""

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
        """Return the only operation with this name."""
        steps = [step for step in self.steps if step.name == name]
        assert len(steps) == 1, f"{len(steps)} operations named {name!r} in {self.names}"
        return steps[0]

    def written(self, path: str) -> str:
        """Return the text of a file after the run."""
        return self.disk.read(path)


class _RecordedHost(Host):
    """A pyinfra host without a connection."""

    recorder: Recorder

    def get_fact(self, name_or_cls: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401  # any fact, of any type
        if issubclass(name_or_cls, ShortFactBase):
            return name_or_cls().process_data(self.get_fact(name_or_cls.fact, *args, **kwargs))
        fact: FactBase[Any] = name_or_cls()
        arguments = bind_arguments(fact, args, kwargs)
        if self.recorder.disk.answers(name_or_cls):
            return self.recorder.disk.answer(name_or_cls, arguments)
        return self.recorder.answers.read(fact, arguments)


@contextmanager
def _pyinfra_context(recorder: Recorder) -> Iterator[tuple[State, _RecordedHost]]:
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
    # Closed here: a generator left open by an error would use the host after the test.
    with closing(cast("Generator[PyinfraCommand, None, None]", data.command_generator())) as running:
        commands = tuple(_execute(host.recorder.disk, command) for command in running)
    data.operation_meta.set_complete(success=True, commands=list(commands), combined_output=CommandOutput([]))
    (name,) = state.get_op_meta(operation).names
    kind, arguments = _kind_and_arguments(data)
    return Step(kind, name, arguments, expected, commands)


def _kind_and_arguments(data: StateOperationHostData) -> tuple[str, Mapping[str, Any]]:
    """Return an operation's kind and arguments, which pyinfra keeps only in a closure."""
    closure = getclosurevars(data.command_generator).nonlocals
    arguments = signature(closure["func"]).bind(*closure["args"], **closure["kwargs"]).arguments
    return f"{closure['func'].__module__.rpartition('.')[2]}.{closure['func'].__name__}", arguments


def _execute(disk: Disk, command: PyinfraCommand) -> str:
    """Apply a command to the disk, and return it as a line."""
    if isinstance(command, FileUploadCommand):
        before = disk.entries.get(command.dest, Entry())
        disk.write(command.dest, replace(before, content=_text(command.src)))
        return f"upload {command.dest}"
    if isinstance(command, StringCommand):
        disk.run(str(command), str(command.connector_arguments.get("_stdin") or ""))
        return str(command)
    return repr(command)


def _text(source: str | IO[Any]) -> str:
    if isinstance(source, str | Path):
        return Path(source).read_text(encoding="utf-8")
    source.seek(0)
    content = source.read()
    return content.decode() if isinstance(content, bytes) else content
