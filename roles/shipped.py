"""Whole files of root's that a role puts on a node: an operation each, and one question about all of them.

pyinfra's own `files.put` asks three questions a file, and each is a round trip.
"""

from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from posixpath import dirname

from pyinfra.api.command import PyinfraCommand, QuoteString, StringCommand
from pyinfra.api.facts import FactBase
from pyinfra.api.operation import operation
from pyinfra.context import host

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
