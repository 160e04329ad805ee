"""What all tests share: no way out of this machine, and expected texts, kept as files and rewritten on demand."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests.testlab.run import kept_in, shut_off

# `make fuzz`: as many random fleets as a release deserves.
settings.register_profile("long", max_examples=10_000)
DATA = Path(__file__).parent / "data"

# Checks ask for the day: 21 November 2026 at noon in every test, in this process and those that it starts.
os.environ["SOURCE_DATE_EPOCH"] = "1795262400"
shut_off(os.environ)

Expect = Callable[[str, str], None]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that accepts what the program says now; its diff is then read before it is committed."""
    parser.addoption("--rewrite", action="store_true", help="write the expected texts under tests/data anew")


@pytest.fixture(scope="session", autouse=True)
def _offline() -> Iterator[None]:
    """Keep every test of this process on this machine."""
    with kept_in():
        yield


@pytest.fixture
def expect(request: pytest.FixtureRequest) -> Expect:
    """Give the comparison of a text with the file of that name under tests/data."""
    is_rewriting = request.config.getoption("--rewrite")

    def compare(name: str, text: str) -> None:
        path = DATA / name
        if is_rewriting:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert text == path.read_text(encoding="utf-8")

    return compare
