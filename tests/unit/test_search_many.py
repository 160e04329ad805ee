"""A search of the size that people have, measured as `benchmarks/search.py` does."""

from pathlib import Path

import pytest

from benchmarks.search import measure


@pytest.mark.nightly
def test_two_hundred_trials_are_whole_after_two_kills(tmp_path: Path) -> None:
    """20 at a time: none is doubled or lost, and some are pruned. Its targets are those of the benchmark."""
    figures = measure(tmp_path)

    assert figures.is_whole, str(figures)
