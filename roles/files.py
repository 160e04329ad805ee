"""Whole files of root's that a role puts on a node: an operation each, and one question about all of them.

pyinfra's own `files.put` asks three questions a file, and each is a round trip.
"""

import re
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from io import StringIO
from pathlib import Path
from posixpath import dirname
from shlex import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from pyinfra.api.command import PyinfraCommand, QuoteString, StringCommand
from pyinfra.api.facts import FactBase
from pyinfra.api.operation import operation
from pyinfra.context import host
from pyinfra.operations import files, server

from bedplate.errors import InputError
from roles.base import Changes

_SYMLINK = "symlink"


@dataclass(frozen=True, slots=True)
class Shipped:
    """A file and how an operator is told of it; `mode` in octal, `600`.

    `replaces_symlink`: a symlink at the path is replaced, not refused. Its target is never written to.
    """

    name: str
    path: str
    text: str
    mode: str = "644"
    replaces_symlink: bool = False

    @property
    def mark(self) -> str:
        """What tells it from any other: mode, owners, sum."""
        return f"{self.mode} root:root {sha256(self.text.encode()).hexdigest()}"


class Marks(FactBase[Mapping[str, str]]):
    """The mark of each file that there is, by its path; that of a symlink is `symlink`."""

    default = dict

    def command(self, paths: Sequence[str]) -> StringCommand:
        """Ask for mode, owners and sum of each path, in two programs."""
        quoted = [QuoteString(path) for path in paths]
        # Lines that end with NUL have their paths as they are; others' backslashes would be written twice.
        link = f'if [ -L "$f" ]; then printf "{_SYMLINK}  %s\\n" "$f"'
        own = f'do {link}; elif [ -f "$f" ]; then set -- "$@" "$f"; fi; done'
        told = '[ $# = 0 ] || { stat -c "%a %U:%G %n" "$@"; sha256sum -z "$@" | tr "\\0" "\\n"; }'
        return StringCommand("set --; for f in", *quoted, f"; {own}; {told}")

    def process(self, output: Iterable[str]) -> Mapping[str, str]:
        """Join what both programs say of a path, which comes last."""
        found: dict[str, tuple[str, ...]] = {}
        for line in output:
            word, second, rest = line.split(" ", 2)
            # Between a sum, or `symlink`, and the path are two spaces.
            path, told = (rest, f"{word} {second}") if second else (rest, word)
            found[path] = (*found.get(path, ()), told)
        return {path: " ".join(told) for path, told in found.items()}


def ship(*wanted: Shipped) -> Changes:
    """Declare that these files are on the node as they are here; InputError where a path is a symlink."""
    among = tuple(each.path for each in wanted)
    return [_place(name=each.name, file=each, among=among) for each in wanted]


@operation()
def _place(file: Shipped, among: Sequence[str]) -> Generator[PyinfraCommand, None, None]:
    found = host.get_fact(Marks, paths=among).get(file.path)
    if found == file.mark:
        host.noop(f"{file.path} is as it should be")
        return
    if found == _SYMLINK and not file.replaces_symlink:
        raise InputError(f"{file.path} is a symlink, not a file", fix=f"`sudo rm {file.path}`, then apply again")
    yield written(file)


def written(file: Shipped) -> StringCommand:
    """Return what writes a file: one exchange, however long its text.

    Whoever reads the path finds the old file or the new one, never a part; a secret is never open to others, and in no
    list of processes.
    """
    folder, path, new = (QuoteString(each) for each in (dirname(file.path), file.path, f"{file.path}.new"))
    begun = StringCommand("mkdir -p", folder, "&& install -o root -g root -m 600 /dev/null", new)
    # pyinfra ends the last line of what it sends; the file has what it is to have.
    filled = StringCommand("head -c", str(len(file.text.encode())), ">", new)
    placed = StringCommand("chmod", file.mode, new, "&& sync", new, "&& mv -fT", new, path)
    undone = StringCommand("{ rm -f", new, "; exit 1; }")
    return StringCommand(begun, "&&", filled, "&&", placed, "||", undone, _stdin=file.text)


_ROLES = Path(__file__).parent
_TEMPLATES = Environment(
    loader=FileSystemLoader(_ROLES),
    undefined=StrictUndefined,
    autoescape=False,  # noqa: S701  # settings of daemons, not pages
    keep_trailing_newline=True,
    trim_blocks=True,
    lstrip_blocks=True,
)


def rendered(template: str, **values: object) -> str:
    """Return the text of a template, named from here: `baseline/motd.j2`."""
    return _TEMPLATES.get_template(template).render(**values)


def text_of(name: str) -> str:
    """Return the text of a file that is shipped as it lies there, named from here."""
    return (_ROLES / name).read_text(encoding="utf-8")


_MARK = "==bedplate== "


@dataclass(frozen=True, slots=True)
class Edit:
    """A file that the distribution wrote, and what is to become of its text; it keeps its mode."""

    path: str
    change: Callable[[str], str]


class Texts(FactBase[Mapping[str, str]]):
    """The text of each file that there is, by its path: one round trip, however many files."""

    default = dict

    def command(self, paths: Iterable[str]) -> StringCommand:
        """Show each file under a line that names it."""
        quoted = [QuoteString(path) for path in paths]
        return StringCommand("for f in", *quoted, f'; do [ ! -f "$f" ] || {{ echo "{_MARK}$f"; cat "$f"; }}; done')

    def process(self, output: Iterable[str]) -> Mapping[str, str]:
        """Cut the output at the lines that name files."""
        found: dict[str, str] = {}
        path = ""
        for line in output:
            if line.startswith(_MARK):
                path = line.removeprefix(_MARK)
                found[path] = ""
            else:
                found[path] += f"{line}\n"
        return found


def edited(*edits: Edit) -> Changes:
    """Write the files whose text is not yet what it is to be; a file that is missing is left so."""
    found = host.get_fact(Texts, paths=tuple(edit.path for edit in edits))
    wanted = {edit.path: edit.change(found[edit.path]) for edit in edits if edit.path in found}
    return [files.put(name=path, src=StringIO(text), dest=path) for path, text in wanted.items() if text != found[path]]


def with_words(text: str, words: Mapping[str, str]) -> str:
    """Return a text of `KEY value` lines in which each key has this value, once."""
    for key, value in words.items():
        text = with_line(text, rf"#?\s*{key}\s", f"{key}\t{value}")
    return text


def with_line(text: str, instead_of: str, line: str) -> str:
    """Return a text that holds a line once: where the first line began like that, else at the end."""
    pattern = re.compile(instead_of)
    lines = text.splitlines()
    places = [place for place, each in enumerate(lines) if each == line or pattern.match(each)]
    kept = [each for place, each in enumerate(lines) if place not in places[1:]]
    if places:
        kept[places[0]] = line
    else:
        kept.append(line)
    return "\n".join(kept) + "\n"


# Source: systemd.unit(5), the load path; what packages put into /usr/lib is theirs, and none knows our units.
_FOLDERS = ("/etc/systemd/system.control", "/run/systemd/system.control", "/etc/systemd/system", "/run/systemd/system")
_READ_ANEW = "if [ -d /run/systemd/system ]; then systemctl daemon-reload; fi"


class DropIns(FactBase[tuple[str, ...]]):
    """The folders of drop-ins that there are for these units."""

    default = tuple

    def command(self, units: Sequence[str]) -> StringCommand:
        """Look in each folder that systemd reads; what is missing says nothing."""
        paths = (f"{folder}/{unit}.d" for unit in units for folder in _FOLDERS)
        return StringCommand("ls -d", *(QuoteString(path) for path in paths), "2>/dev/null || :")

    def process(self, output: Iterable[str]) -> tuple[str, ...]:
        """Read a path a line."""
        return tuple(output)


def removed(name: str, units: Sequence[str]) -> None:
    """Declare that these units do what their own files say."""
    if units and (found := host.get_fact(DropIns, units=tuple(units))):
        gone = " ".join(("rm -rf", *map(quote, found)))
        server.shell(name=name, commands=[gone, _READ_ANEW])
