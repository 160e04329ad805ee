"""A machine to the checks: the parts that the role `gate` expects, its programs with a time limit, and its files."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..program import output


@dataclass(frozen=True)
class Gpus:
    """The GPUs of a machine; `memory` is MiB of one GPU, 0 if unknown. `switched`: NVSwitch connects them.

    `bandwidth` is the least GB/s of an all-reduce in a burn-in, 0 if unknown.
    """

    model: str
    count: int
    memory: int = 0
    switched: bool = False
    bandwidth: int = 0


@dataclass(frozen=True)
class Expected:
    """The expected parts of a machine. `driver` is the branch, None without GPUs; `efa` the number of EFA devices."""

    driver: str | None = None
    gpus: Gpus | None = None
    efa: int = 0
    mounts: Sequence[str] = field(default=())


def read_expected(file: Path, machine_type: str) -> Expected:
    """Return the expected parts of an EC2 type; a machine of a site has one entry, without a type.

    Raises KeyError if the file does not have the type, OSError and ValueError for an unreadable file.
    """
    document: Mapping[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    types = document["types"]
    values = dict(types[machine_type] if machine_type in types else types[""])
    gpus = values.pop("gpus", None)
    return Expected(**values, gpus=Gpus(**gpus) if gpus else None)


@dataclass(frozen=True)
class Machine:
    """The machine that runs the gate; tests use another root."""

    root: Path = Path("/")
    timeout: float = 30.0
    """Seconds until a program counts as hanging."""

    def output(self, *command: str) -> str:
        """Return what a program prints. Raises ProgramError."""
        return output(*command, seconds=self.timeout)

    def read(self, path: str) -> str:
        """Return the text of a file without surrounding space, empty if there is none."""
        try:
            return (self.root / path.lstrip("/")).read_text(encoding="utf-8", errors="replace").strip()
        except OSError:
            return ""

    def names(self, folder: str) -> Iterable[str]:
        """Return the names in a folder, none if there is no such folder."""
        path = self.root / folder.lstrip("/")
        return sorted(entry.name for entry in path.iterdir()) if path.is_dir() else ()
