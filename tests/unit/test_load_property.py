"""Whatever bytes a file holds, the answer is a fleet or faults."""

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from bedplate.catalog import load_catalog
from bedplate.checks.fault import Fault, Level
from bedplate.load import examine

BASE = (Path(__file__).parents[1] / "data" / "fleets" / "base.yaml").read_bytes()
_PIECES = st.one_of(
    st.binary(max_size=8),
    st.sampled_from(
        [b"*a", b"&a ", b"<<: ", b"[", b"}", b"? ", b"!x ", b"- ", b"\n", b"null", b"'", b'"', b"0", b"1e9", b": "]
    ),
)
_CUTS = st.lists(st.tuples(st.integers(0, len(BASE)), st.integers(0, 40), _PIECES), min_size=1, max_size=4)


def answer(data: bytes) -> tuple[Fault, ...]:
    """Return the faults of a file of these bytes; none means that it is a fleet."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "fleet.yaml"
        path.write_bytes(data)
        return examine(path, load_catalog())


@settings(deadline=None, max_examples=200)
@given(st.binary(max_size=200))
def test_any_bytes_are_answered(data: bytes) -> None:
    """No traceback and no hang, whatever the file is."""
    assert any(told.level is Level.ERROR for told in answer(data))


@settings(deadline=None, max_examples=300)
@given(_CUTS)
def test_a_damaged_fleet_is_answered(cuts: list[tuple[int, int, bytes]]) -> None:
    """A few bytes cut out and others put in make a fleet, or faults each of a place."""
    data = BASE
    for start, length, piece in cuts:
        data = data[:start] + piece + data[start + length :]

    assert all(told.line >= 1 and told.column >= 1 for told in answer(data))
