"""What the image of a node is made of, as text: driver branches, the GPUs they run, versions of Kubernetes."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date

from bedplate.catalog.sheet import ABSENT

OPEN = "open"


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


def read_chips(rows: Iterable[str]) -> dict[str, ChipFacts]:
    """Return the GPUs by name."""
    cells = (row.split("\t") for row in rows)
    return {
        name: ChipFacts(name, generation, int(first), modules == OPEN) for name, generation, first, modules in cells
    }


def read_releases(rows: Iterable[str]) -> dict[str, date]:
    """Return the day on which each minor version of Kubernetes gets its last patch, oldest version first."""
    cells = (row.split("\t") for row in rows)
    return {version: date.fromisoformat(ends) for version, ends in cells}
