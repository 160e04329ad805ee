"""The expected parts of a machine: the file that the role `gate` writes."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


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
