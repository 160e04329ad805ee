"""Files that the role puts on a node: their texts, and one question about all of them instead of two a file."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from io import StringIO
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from pyinfra.api.command import StringCommand
from pyinfra.api.facts import FactBase
from pyinfra.api.operation import OperationMeta
from pyinfra.context import host
from pyinfra.operations import files

from roles.base import Changes

_HERE = Path(__file__).parent
_TEMPLATES = Environment(
    loader=FileSystemLoader(_HERE),
    undefined=StrictUndefined,
    autoescape=False,  # noqa: S701  # settings of daemons, not pages
    keep_trailing_newline=True,
    trim_blocks=True,
)


def rendered(template: str, **values: object) -> str:
    """Return the text of a template that lies beside this file."""
    return _TEMPLATES.get_template(template).render(**values)


def text_of(name: str) -> str:
    """Return the text of a file that lies beside this one."""
    return (_HERE / name).read_text()


@dataclass(frozen=True, slots=True)
class Shipped:
    """A file of root's, whole, with its mode in octal."""

    path: str
    text: str
    mode: str = "644"

    @property
    def print(self) -> str:
        """What tells this file from another: its text, its mode, its owners."""
        return " ".join((sha256(self.text.encode()).hexdigest(), self.mode, "root:root"))


class Prints(FactBase[Mapping[str, str]]):
    """The print of each file that there is, by its path: one round trip, however many files."""

    default = dict

    def command(self, paths: Sequence[str]) -> StringCommand:
        """Ask for mode, owners and sum of each path; one that is missing says nothing."""
        asked = "; ".join(f"stat -c '{path} %a %U:%G' {path}; sha256sum {path}" for path in paths)
        return StringCommand("sh", "-c", f'"{{ {asked}; }} 2>/dev/null; true"')

    def process(self, output: Iterable[str]) -> Mapping[str, str]:
        """Join the two lines of each file."""
        return dict(_joined(list(output)))


def _joined(lines: list[str]) -> Iterator[tuple[str, str]]:
    for status, summed in zip(lines[::2], lines[1::2], strict=True):
        path, mode, owners = status.rsplit(" ", 2)
        yield path, f"{summed.partition(' ')[0]} {mode} {owners}"


def ship(*wanted: Shipped) -> Changes:
    """Put in place the files that differ from what is wanted; return what was done."""
    found = host.get_fact(Prints, paths=tuple(each.path for each in wanted))
    return [_put(each) for each in wanted if found.get(each.path) != each.print]


def _put(file: Shipped) -> OperationMeta:
    return files.put(
        name=file.path,
        src=StringIO(file.text),
        dest=file.path,
        user="root",
        group="root",
        mode=file.mode,
    )
