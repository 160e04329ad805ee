"""A program whose clock is wrong."""

from collections.abc import Mapping
from pathlib import Path


def skewed(by: str) -> Mapping[str, str]:
    """Return the environment that puts a program's clock off, such as -4m or +100d; timers keep the true pace."""
    (library,) = sorted(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"))[:1]
    return {"LD_PRELOAD": str(library), "FAKETIME": by, "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
