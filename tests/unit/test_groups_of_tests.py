"""Tests that share machines or daemons stay with one worker: what pytest-xdist promises, and a pytest may break."""

import subprocess
import sys
from pathlib import Path

_CONFTEST = """
import pytest

@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    for item in items:
        item.add_marker(pytest.mark.xdist_group(item.path.stem))
"""
_MODULE = """
import os
from pathlib import Path

import pytest

@pytest.mark.parametrize("number", range(4))
def test_it(number):
    Path(__file__).with_suffix(f".{number}").write_text(os.environ["PYTEST_XDIST_WORKER"])
"""


def test_a_group_runs_in_one_worker(tmp_path: Path) -> None:
    """As `make test-nodes` marks them: each module's tests in one process, one after another."""
    (tmp_path / "conftest.py").write_text(_CONFTEST)
    for name in ("test_here", "test_there"):
        (tmp_path / f"{name}.py").write_text(_MODULE)

    way = ("-p", "no:cacheprovider", "-n", "2", "--dist", "loadgroup", "--rootdir", str(tmp_path))
    subprocess.run((sys.executable, "-m", "pytest", "-q", *way, str(tmp_path)), check=True, capture_output=True)

    for name in ("test_here", "test_there"):
        assert len({file.read_text() for file in tmp_path.glob(f"{name}.[0-9]")}) == 1
