"""Texts of files that belong to the distribution, and the lines in them that are ours: text in, text out."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from io import StringIO

from pyinfra.api.command import QuoteString, StringCommand
from pyinfra.api.facts import FactBase
from pyinfra.context import host
from pyinfra.operations import files

from roles.base import Changes

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
