"""What a test needs of the machine: it is skipped where that is missing, with the reason, but fails under CI=true."""

import os
import shutil

import pytest


def need_root() -> None:
    """Go on as root only."""
    if os.geteuid() != 0:
        _lack("needs root")


def need_program(name: str) -> None:
    """Go on where the program is installed."""
    if shutil.which(name) is None:
        _lack(f"needs {name}")


def _lack(reason: str) -> None:
    if os.environ.get("CI") == "true":
        pytest.fail(f"{reason}, and CI may not leave it out")
    pytest.skip(reason)
