"""Whole files of root's that a role puts on a node: an operation each, and one question about all of them.

pyinfra's own `files.put` asks three questions a file, and each is a round trip.
"""

from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from io import StringIO
from posixpath import dirname

from pyinfra.api.command import FileUploadCommand, PyinfraCommand, QuoteString, StringCommand
from pyinfra.api.facts import FactBase
from pyinfra.api.operation import operation
from pyinfra.context import host

from roles.base import Changes
from roles.engine.agent import DRAFT


@dataclass(frozen=True, slots=True)
class Shipped:
    """A file and how an operator is told of it; `mode` in octal, `600`."""

    name: str
    path: str
    text: str
    mode: str = "644"

    @property
    def mark(self) -> str:
        """What tells it from any other: mode, owners, sum."""
        return f"{self.mode} root:root {sha256(self.text.encode()).hexdigest()}"


class Marks(FactBase[Mapping[str, str]]):
    """The mark of each file that there is, by its path."""

    default = dict

    def command(self, paths: Sequence[str]) -> StringCommand:
        """Ask for mode, owners and sum of each path; what is no file of its own says nothing."""
        quoted = [QuoteString(path) for path in paths]
        each = 'echo "$(stat -c "%a %U:%G" "$f") $(sha256sum < "$f" | cut -d" " -f1) $f"'
        return StringCommand("for f in", *quoted, f'; do [ ! -f "$f" ] || [ -L "$f" ] || {each}; done')

    def process(self, output: Iterable[str]) -> Mapping[str, str]:
        """Part the path, which comes last, from its mark."""
        words = (line.split(" ", 3) for line in output)
        return {path: f"{mode} {owners} {digest}" for mode, owners, digest, path in words}


def ship(*wanted: Shipped) -> Changes:
    """Declare that these files are on the node as they are here."""
    among = tuple(each.path for each in wanted)
    return [_place(name=each.name, file=each, among=among) for each in wanted]


@operation()
def _place(file: Shipped, among: Sequence[str]) -> Generator[PyinfraCommand, None, None]:
    if host.get_fact(Marks, paths=among).get(file.path) == file.mark:
        host.noop(f"{file.path} is as it should be")
        return
    # Whoever reads the path finds the old file or the new one, never a part, and a secret is never open to others.
    new = f"{file.path}{DRAFT}"
    yield StringCommand("mkdir", "-p", QuoteString(dirname(new)), "&&", "install -m 600 /dev/null", QuoteString(new))
    yield FileUploadCommand(StringIO(file.text), new, remote_temp_filename=host.get_temp_filename(new))
    owned = StringCommand("chown", "root:root", QuoteString(new), "&&", "chmod", file.mode, QuoteString(new))
    yield StringCommand(owned, "&&", "mv", "-fT", QuoteString(new), QuoteString(file.path))
