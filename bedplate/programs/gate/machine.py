"""A machine to the checks: the parts that the role `gate` expects, its programs with a time limit, and its files."""

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..program import Result, output, run


@dataclass(frozen=True)
class Gpus:
    """The GPUs of a machine; `memory` is MiB of one GPU, 0 if unknown. `switched`: NVSwitch may connect them.

    `bandwidth` is the least GB/s of an all-reduce in a burn-in, 0 if unknown. `mig`: they may be split into instances.
    """

    model: str
    count: int
    memory: int = 0
    switched: bool = False
    bandwidth: int = 0
    mig: bool = False


@dataclass(frozen=True)
class Expected:
    """The expected parts of a machine. `driver` is the branch, None without GPUs; `efa` the number of EFA devices.

    `cloud`: AWS can replace the machine.
    """

    driver: str | None = None
    gpus: Gpus | None = None
    efa: int = 0
    mounts: Sequence[str] = field(default=())
    cloud: bool = False


def read_expected(file: Path, machine_type: str) -> Expected:
    """Return the expected parts of an EC2 type; a machine of a site has one entry, without a type.

    Raises KeyError if the file does not have the type, OSError and ValueError for an unreadable file.
    """
    document: Mapping[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    types = document["types"]
    values = dict(types[machine_type] if machine_type in types else types[""])
    gpus = values.pop("gpus", None)
    return Expected(**values, gpus=Gpus(**gpus) if gpus else None)


# Without persistence mode nvidia-smi initializes each GPU first; the kernel's log of a month is long. A diagnosis of
# level 1 takes a minute on eight GPUs, one of level 3 a quarter of an hour.
_LONGER = {"nvidia-smi": 2.0, "journalctl": 2.0, "dcgmi": 10.0, "all_reduce_perf": 10.0}
_PCI = "/sys/bus/pci/devices"


@dataclass(frozen=True)
class Machine:
    """The machine that runs the gate; tests use another root."""

    root: Path = Path("/")
    timeout: float = 30.0
    """Seconds until a program counts as hanging; some programs have a multiple."""
    last: Mapping[str, Any] = field(default_factory=dict)
    """The last verdict of this boot; empty before the first."""

    def run(self, *command: str, attempts: int = 1) -> Result:
        """Return the end of a program, after a pause the next attempt's if it fails. Raises ProgramError."""
        seconds = self.timeout * _LONGER.get(command[0], 1.0)
        result = run(*command, seconds=seconds)
        if result.error and attempts > 1:
            time.sleep(self.timeout / 6)
            return self.run(*command, attempts=attempts - 1)
        return result

    def output(self, *command: str) -> str:
        """Return what a program prints. Raises ProgramError."""
        return output(*command, seconds=self.timeout * _LONGER.get(command[0], 1.0))

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

    def count_devices(self, starts: Mapping[str, str]) -> int | None:
        """Return how many PCI devices have files with these first characters; None if the bus cannot be read."""
        devices = [f"{_PCI}/{name}" for name in self.names(_PCI)]
        matching = [
            path
            for path in devices
            if all(self.read(f"{path}/{name}").startswith(text) for name, text in starts.items())
        ]
        return len(matching) if devices else None

    def read_device(self, bus_id: str, name: str) -> str:
        """Return a file of a PCI device, by the bus id that NVIDIA prints, such as 00000000:53:00.0."""
        domain, _, rest = bus_id.lower().partition(":")
        return self.read(f"{_PCI}/{domain[-4:]}:{rest}/{name}")
