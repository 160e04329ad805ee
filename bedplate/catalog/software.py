"""What the image of a node is made of, as text: driver branches, the GPUs they run, versions of Kubernetes."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date

from bedplate.catalog.sheet import ABSENT

OPEN, CLOSED = "open", "closed"


@dataclass(frozen=True, slots=True)
class DriverFacts:
    """A branch of NVIDIA's driver; `kernel` and `ends` are None where nobody has stated them."""

    branch: int
    kernel: tuple[int, int] | None = None
    ends: date | None = None


@dataclass(frozen=True, slots=True)
class ChipFacts:
    """A GPU by the name that EC2 has for it: `first` is the first branch that runs it, `open` its open modules."""

    name: str
    generation: str
    first: int
    open: bool


def read_kernel(text: str) -> tuple[int, int]:
    """Return a kernel series such as `6.17` in a form that compares."""
    major, _, minor = text.partition(".")
    return int(major), int(minor)


def write_kernel(series: tuple[int, int]) -> str:
    """Return a kernel series as it is written."""
    return f"{series[0]}.{series[1]}"


def read_drivers(rows: Iterable[str]) -> dict[str, DriverFacts]:
    """Return the branches by their numbers, as text."""
    cells = (row.split("\t") for row in rows)
    return {
        branch: DriverFacts(
            int(branch),
            None if kernel == ABSENT else read_kernel(kernel),
            None if ends == ABSENT else date.fromisoformat(ends),
        )
        for branch, kernel, ends in cells
    }


def write_drivers(drivers: Mapping[str, DriverFacts]) -> tuple[str, ...]:
    """Return one row a branch, oldest first."""
    return tuple(
        f"{name}\t{write_kernel(facts.kernel) if facts.kernel else ABSENT}\t{facts.ends or ABSENT}"
        for name, facts in sorted(drivers.items())
    )


def read_chips(rows: Iterable[str]) -> dict[str, ChipFacts]:
    """Return the GPUs by name."""
    cells = (row.split("\t") for row in rows)
    return {
        name: ChipFacts(name, generation, int(first), modules == OPEN) for name, generation, first, modules in cells
    }


def write_chips(chips: Mapping[str, ChipFacts]) -> tuple[str, ...]:
    """Return one row a GPU, by name."""
    return tuple(
        f"{name}\t{facts.generation}\t{facts.first}\t{OPEN if facts.open else CLOSED}"
        for name, facts in sorted(chips.items())
    )


def read_releases(rows: Iterable[str]) -> dict[str, date]:
    """Return the day on which each minor version of Kubernetes gets its last patch, oldest version first."""
    cells = (row.split("\t") for row in rows)
    return {version: date.fromisoformat(ends) for version, ends in cells}


def write_releases(releases: Mapping[str, date]) -> tuple[str, ...]:
    """Return one row a minor version, oldest first."""
    return tuple(f"{version}\t{releases[version]}" for version in sorted(releases, key=read_kernel))
