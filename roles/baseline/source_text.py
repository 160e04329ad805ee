"""Files of sources as text: lines of the older form, stanzas of the newer one. Reads alone; judges and changes nothing.

Sources: sources.list(5) and deb822(5). A line of blanks parts two stanzas here, as it does to whoever wrote it; apt
itself takes them for one, of whose fields the last counts, until the role writes the file with an empty line.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

_LINE = re.compile(r"\s*(?P<kind>deb(?:-src)?)\s+(?:\[(?P<options>[^\]]*)\]\s*)?(?P<rest>[^\s#]+\s+[^\s#].*)")
_FIELD = re.compile(r"(?P<name>[A-Za-z-]+)\s*:")


@dataclass(frozen=True, slots=True)
class SourceLine:
    """A source of the older form; `rest` is all behind the options, as it stands."""

    kind: str
    options: tuple[str, ...]
    rest: str

    @property
    def suite(self) -> str:
        """The release, or a folder that ends in a slash."""
        return self.rest.partition("#")[0].split()[1]


@dataclass(frozen=True, slots=True)
class Stanza:
    """A source of the newer form: its lines, each behind the name of its field in small letters, none for a remark."""

    rows: tuple[tuple[str, str], ...]

    def words(self, field: str) -> tuple[str, ...]:
        """Return the words of a field, which may go on over lines; of two fields of a name the last counts."""
        words: tuple[str, ...] = ()
        for line in (line for name, line in self.rows if name == field):
            start = _FIELD.match(line)
            words = tuple(line[start.end() :].split()) if start else (*words, *line.split())
        return words


def read_line(text: str) -> SourceLine | None:
    """Return the source of a line, nothing where it has none."""
    found = _LINE.fullmatch(text)
    return SourceLine(found["kind"], tuple((found["options"] or "").split()), found["rest"]) if found else None


def read_stanzas(text: str) -> tuple[Stanza, ...]:
    """Return all that stands between empty lines, remarks too."""
    return tuple(Stanza(tuple(_rows(each.strip("\n")))) for each in re.split(r"\n\s*\n", text))


def _rows(text: str) -> Iterator[tuple[str, str]]:
    name = ""
    for line in text.splitlines():
        if found := _FIELD.match(line):
            name = found["name"].lower()
        yield "" if line.startswith("#") else name, line
