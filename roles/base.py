"""The base of roles: the class `Role`, the order in which stages run, and the files that a role writes to a node.

`install` needs no running systemd, so an image build runs the same code as a node; `activate` needs it. Files are whole
files, edits of the distribution's files, templates and systemd drop-ins. One query reads the state of all files of a
call; pyinfra's own `files.put` needs three round trips a file.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256
from io import StringIO
from pathlib import Path
from posixpath import dirname
from typing import ClassVar

from pyinfra.api.command import PyinfraCommand, QuoteString, StringCommand
from pyinfra.api.facts import FactBase
from pyinfra.api.operation import OperationMeta, operation
from pyinfra.context import host
from pyinfra.operations import files, server, systemd
from pyinfra.operations.util import any_changed

import bedplate.programs
from bedplate.errors import InputError
from bedplate.templates import templates

Changes = Mapping[str, OperationMeta]
"""The operations that write files, by path."""
NO_CHANGES: Changes = {}


def changed(changes: Changes, *paths: str) -> Callable[[], bool]:
    """Return the `_if` condition that one of these files has changed; any file, if no path is given."""
    # Without `configure` nothing has changed.
    return any_changed(*(changes[path] for path in paths or changes) if changes else ())


@dataclass(frozen=True, slots=True)
class DiskSpace:
    """Disk space in MiB: `programs` below /usr, `state` below /var, `temporary` below /tmp."""

    programs: int = 0
    state: int = 0
    temporary: int = 0


class Disruption(StrEnum):
    """The disruption by a change of a role: nothing, a service, all work on the node, or the node itself."""

    NONE = "none"
    SERVICE = "service"
    DRAIN = "drain"
    REBOOT = "reboot"


class Role(ABC):
    """A service on a node. Subclasses are frozen dataclasses of the plan's values for it."""

    name: ClassVar[str]
    space: ClassVar[DiskSpace] = DiskSpace()
    """The most space that `install` needs: installed sizes and archives of apt on Debian 12, plus a third."""
    disruption: ClassVar[Disruption] = Disruption.SERVICE
    """On a node that is ready, the configuration run makes changes that disturb nothing or a service."""

    @abstractmethod
    def install(self) -> None:
        """Install packages; needs no systemd, and reads no disk, kernel or address: an image is built elsewhere."""

    def files(self) -> Iterable["ManagedFile"]:
        """Return the files of this node's services."""
        return ()

    def configure(self) -> Changes:
        """Write the files of this node's services; return the changes that `activate` needs."""
        return put_files(*self.files())

    @abstractmethod
    def activate(self, changes: Changes) -> None:
        """Start services, and restart or reload those whose files have changed."""


UNITS = "/etc/systemd/system"
"""The folder of units, and the start of that of the settings of systemd itself."""
STAGES = ("install", "configure", "activate")


def deploy(
    roles: tuple[Role, ...], only: Collection[str] | None = None, stages: Collection[str] | None = None
) -> tuple[tuple[Role, frozenset[str]], ...]:
    """Declare the operations of the selected roles and stages to pyinfra; None selects all.

    Each stage runs for all roles before the next stage begins; before the last one, systemd reads changed units. Return
    each role with the keys of the operations that its `install` declared.
    """
    selected = [role for role in roles if only is None or role.name in only]
    selected_stages = STAGES if stages is None else stages
    installs: list[tuple[Role, frozenset[str]]] = []
    if "install" in selected_stages:
        for role in selected:
            before = frozenset(host.op_hash_order)
            role.install()
            installs.append((role, frozenset(host.op_hash_order) - before))
    changes: dict[str, Changes] = {}
    if "configure" in selected_stages:
        changes = {role.name: role.configure() for role in selected}
    if "activate" in selected_stages:
        units = [change for files in changes.values() for path, change in files.items() if path.startswith(UNITS)]
        if units:
            systemd.daemon_reload(name="Reload systemd", _if=any_changed(*units))
        for role in selected:
            role.activate(changes.get(role.name, NO_CHANGES))
    return tuple(installs)


@dataclass(frozen=True, slots=True)
class PendingChange:
    """A change to make: the operation's name, and its commands."""

    name: str
    commands: tuple[str, ...]


def run_changes(changes: Iterable[PendingChange]) -> None:
    """Declare one operation for each change."""
    for change in changes:
        server.shell(name=change.name, commands=list(change.commands))


_SYMLINK = "symlink"


@dataclass(frozen=True, slots=True)
class ManagedFile:
    """A file of root's: the name of its operation, its path, text and mode (octal, `600`).

    `replaces_symlink`: replace a symlink at the path instead of reporting an error. Its target is never written to.
    """

    name: str
    path: str
    text: str
    mode: str = "644"
    replaces_symlink: bool = False

    @property
    def signature(self) -> str:
        """Mode, owner, group and SHA-256, as `FileSignatures` reports them."""
        return f"{self.mode} root:root {sha256(self.text.encode()).hexdigest()}"


class FileSignatures(FactBase[Mapping[str, str]]):
    """The signature of each existing file, by path; `symlink` for a symlink."""

    default = dict

    def command(self, paths: Sequence[str]) -> StringCommand:
        """Run stat and sha256sum once for all paths."""
        quoted = [QuoteString(path) for path in paths]
        # With -z, sha256sum prints paths unescaped.
        link = f'if [ -L "$f" ]; then printf "{_SYMLINK}  %s\\n" "$f"'
        select = f'do {link}; elif [ -f "$f" ]; then set -- "$@" "$f"; fi; done'
        show = '[ $# = 0 ] || { stat -c "%a %U:%G %n" "$@"; sha256sum -z "$@" | tr "\\0" "\\n"; }'
        return StringCommand("set --; for f in", *quoted, f"; {select}; {show}")

    def process(self, output: Iterable[str]) -> Mapping[str, str]:
        """Join the lines of a path; the path comes last in each."""
        parts: dict[str, tuple[str, ...]] = {}
        for line in output:
            word, second, rest = line.split(" ", 2)
            # sha256sum prints two spaces before the path.
            part = f"{word} {second}" if second else word
            parts[rest] = (*parts.get(rest, ()), part)
        return {path: " ".join(values) for path, values in parts.items()}


def put_files(*files: ManagedFile) -> Changes:
    """Declare files with their text and mode; return their operations by path. InputError if a path is a symlink."""
    paths = tuple(file.path for file in files)
    return {file.path: _put_file(name=file.name, file=file, paths=paths) for file in files}


@operation()
def _put_file(file: ManagedFile, paths: Sequence[str]) -> Generator[PyinfraCommand, None, None]:
    signature = host.get_fact(FileSignatures, paths=paths).get(file.path)
    if signature == file.signature:
        host.noop(f"{file.path} is up to date")
        return
    if signature == _SYMLINK and not file.replaces_symlink:
        raise InputError(f"{file.path} is a symlink, not a file", fix=f"`sudo rm {file.path}`, then apply again")
    yield write_command(file)


def write_command(file: ManagedFile) -> StringCommand:
    """Return the command that writes a file in one round trip.

    The file is replaced atomically. Its text comes from stdin, so that a secret is in no process list.
    """
    folder, path, new = (QuoteString(name) for name in (dirname(file.path), file.path, f"{file.path}.new"))
    create = StringCommand("mkdir -p", folder, "&& install -o root -g root -m 600 /dev/null", new)
    # pyinfra adds a newline to the last line that it sends.
    fill = StringCommand("head -c", str(len(file.text.encode())), ">", new)
    place = StringCommand("chmod", file.mode, new, "&& sync", new, "&& mv -fT", new, path)
    clean_up = StringCommand("{ rm -f", new, "; exit 1; }")
    return StringCommand(create, "&&", fill, "&&", place, "||", clean_up, _stdin=file.text)


_ROLES = Path(__file__).parent
_TEMPLATES = templates(_ROLES)


def render(template: str, **values: object) -> str:
    """Return the text of a template, by its path below roles/: `baseline/motd.j2`."""
    return _TEMPLATES.get_template(template).render(**values)


def file_text(name: str) -> str:
    """Return the text of a file, by its path below roles/: `baseline/journald.conf`."""
    return (_ROLES / name).read_text(encoding="utf-8")


_PROGRAMS = Path(bedplate.programs.__file__).parent
# Modules besides a program's own, and those that all have.
_SHARED = {
    "agent": ("connection.py", "elements.py"),
    "hub": ("elements.py",),
    "metrics": (
        "gpus.py",
        *(f"gate/{name}" for name in ("__init__.py", "errors.txt", "kernel_log.py", "machine.py", "verdict.py")),
    ),
}
LIBRARY = "/usr/local/lib/bedplate"


def program_texts(name: str) -> Mapping[str, str]:
    """Return the text of each file of a program of `bedplate.programs`, and of what all share, by path below it."""
    own = (*_PROGRAMS.glob(f"{name}.py"), *_PROGRAMS.glob(f"{name}/*.py"), *_PROGRAMS.glob(f"{name}/*.txt"))
    shared = ("__init__.py", "program.py", *_SHARED.get(name, ()))
    paths = (*(_PROGRAMS / path for path in shared), *sorted(own))
    return {path.relative_to(_PROGRAMS).as_posix(): path.read_text(encoding="utf-8") for path in paths}


def program_files(name: str, command: str) -> tuple[ManagedFile, ...]:
    """Return a program of `bedplate.programs` in a folder of its own, then the command that starts it."""
    folder = f"{LIBRARY}/{name}"
    files = (
        ManagedFile(f"Write the program {name}: {path}", f"{folder}/programs/{path}", text)
        for path, text in program_texts(name).items()
    )
    # Last: until then the command of an earlier version starts its own files.
    start = render("program.j2", name=name, folder=folder)
    return (*files, ManagedFile(f"Write {command}", command, start, "755"))


def command_file(path: str, source: str) -> ManagedFile:
    """Return a program of one file, whose text is a file below roles/."""
    return ManagedFile(f"Write {path}", path, file_text(source), "755")


def unit_files(role: str, *units: str) -> tuple[ManagedFile, ...]:
    """Return units of systemd, whose texts are in the folder of a role."""
    return tuple(ManagedFile(f"Write {unit}", f"{UNITS}/{unit}", file_text(f"{role}/{unit}")) for unit in units)


def minute_units(name: str, module: str, about: str) -> tuple[ManagedFile, ...]:
    """Return the units that run a module of the bundle every minute."""
    service = render("minute.service.j2", module=module, about=about)
    return ManagedFile(f"Write {name}.service", f"{UNITS}/{name}.service", service), minute_timer(name, about)


def minute_timer(name: str, about: str) -> ManagedFile:
    """Return the timer that starts a service every minute."""
    return ManagedFile(f"Write {name}.timer", f"{UNITS}/{name}.timer", render("minute.timer.j2", about=about))


_MARK = "==bedplate== "


@dataclass(frozen=True, slots=True)
class Edit:
    """A file of the distribution and the function that returns its new text. The file keeps its mode."""

    path: str
    change: Callable[[str], str]


class FileTexts(FactBase[Mapping[str, str]]):
    """The text of each existing file, by path, in one round trip."""

    default = dict

    def command(self, paths: Iterable[str]) -> StringCommand:
        """Print each file after a line with its path."""
        quoted = [QuoteString(path) for path in paths]
        return StringCommand("for f in", *quoted, f'; do [ ! -f "$f" ] || {{ echo "{_MARK}$f"; cat "$f"; }}; done')

    def process(self, output: Iterable[str]) -> Mapping[str, str]:
        """Split the output at the lines with paths."""
        texts: dict[str, str] = {}
        path = ""
        for line in output:
            if line.startswith(_MARK):
                path = line.removeprefix(_MARK)
                texts[path] = ""
            else:
                texts[path] += f"{line}\n"
        return texts


def edit_files(*edits: Edit) -> None:
    """Declare the edits; a missing file is not created."""
    texts = host.get_fact(FileTexts, paths=tuple(edit.path for edit in edits))
    new_texts = {edit.path: edit.change(texts[edit.path]) for edit in edits if edit.path in texts}
    for path, text in new_texts.items():
        if text != texts[path]:
            files.put(name=f"Edit {path}", src=StringIO(text), dest=path)


def set_values(text: str, values: Mapping[str, str]) -> str:
    """Return a text of `KEY value` lines with these values, each key once."""
    for key, value in values.items():
        text = set_line(text, rf"#?\s*{key}\s", f"{key}\t{value}")
    return text


def set_line(text: str, pattern: str, line: str) -> str:
    """Return a text that contains a line once: in place of the first line that matches, else at the end."""
    regex = re.compile(pattern)
    lines = text.splitlines()
    matches = [index for index, other in enumerate(lines) if other == line or regex.match(other)]
    kept = [other for index, other in enumerate(lines) if index not in matches[1:]]
    if matches:
        kept[matches[0]] = line
    else:
        kept.append(line)
    return "\n".join(kept) + "\n"
