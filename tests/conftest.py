"""Fixtures for all tests: no network, no credentials, a fixed date, and expected texts that `--rewrite` updates."""

import os
import shutil
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import settings

from bedplate.catalog import load_catalog
from tests.testlab.run import block_network, remove_credentials

# `make fuzz` uses this profile.
settings.register_profile("long", max_examples=10_000)
DATA = Path(__file__).parent / "data"

# A shell that runs the tests in the background ignores Ctrl-C for them and for the programs that they start.
signal.signal(signal.SIGINT, signal.default_int_handler)

# For all tests and their child processes it is 21 November 2026, noon.
os.environ["SOURCE_DATE_EPOCH"] = "1795262400"
remove_credentials(os.environ)

# The copies of keys that are shipped end on days of their own, which must not change the faults of a test's fleet.
KEYS = cast("dict[str, Any]", load_catalog().keys)
KEYS.update({name: replace(key, ends=None) for name, key in KEYS.items()})

Expect = Callable[[str, str], None]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that rewrites expected texts; read the diff before a commit."""
    parser.addoption("--rewrite", action="store_true", help="rewrite the expected texts in tests/data")


def pytest_report_header() -> str:
    """Say whether the tests of deployments run Pulumi's engine, or only replay its recorded events."""
    is_real = shutil.which("pulumi") and shutil.which("pulumi-language-python")
    return f"engine: {'pulumi on PATH, and recorded events' if is_real else 'recorded events only: no pulumi on PATH'}"


@pytest.fixture(scope="session", autouse=True)
def _offline() -> Iterator[None]:
    """Fail each test that connects to another machine."""
    with block_network():
        yield


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Keep the resources that `graph` and `reach` cache in a temporary folder."""
    os.environ["XDG_CACHE_HOME"] = str(tmp_path_factory.mktemp("cache"))


@pytest.fixture
def expect(request: pytest.FixtureRequest) -> Expect:
    """Return a function that compares a text with a file in tests/data."""
    is_rewriting = request.config.getoption("--rewrite")

    def compare(name: str, text: str) -> None:
        path = DATA / name
        if is_rewriting:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert text == path.read_text(encoding="utf-8")

    return compare
