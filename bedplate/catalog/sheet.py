"""The form that all data files share: date, source and unit in `# key: value` lines, then one fact a line."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

ABSENT = "-"


@dataclass(frozen=True, slots=True)
class Sheet:
    """One data file: `heading` has at least `date` and `source`; rows are lines without their newline."""

    heading: Mapping[str, str]
    rows: tuple[str, ...]


def read_sheet(text: str) -> Sheet:
    """Return the sheet that `text` holds; ValueError when a heading line has no value."""
    lines = text.splitlines()
    heading = [line for line in lines if line.startswith("#")]
    return Sheet(
        heading=dict(line[2:].split(": ", 1) for line in heading),
        rows=tuple(lines[len(heading) :]),
    )


def write_sheet(heading: Mapping[str, str], rows: Iterable[str]) -> str:
    """Return the text of a data file; the rows keep their order."""
    return "".join(f"{line}\n" for line in (*(f"# {key}: {heading[key]}" for key in heading), *rows))
