"""What a gateway remembers of laptops that are gone."""

from pathlib import Path

import pytest

from vpn.keeper.seen import remember, seen
from vpn.keeper.sessions import Session

ADA = Session("ada.laptop", "10.121.4.2", 1, 1, 90, None)


def test_who_was_there_is_remembered(tmp_path: Path) -> None:
    """The moment of the last look at which the laptop was connected; others' moments stay."""
    file = tmp_path / "memory" / "seen.json"
    remember(file, seen(file, [ADA], 100))
    remember(file, seen(file, [], 160))
    remember(file, seen(file, [Session("grace.laptop", "10.121.4.3", 1, 1, 150, None)], 220))

    assert seen(file, [], 300) == {"ada.laptop": 100, "grace.laptop": 220}
    assert [left.name for left in file.parent.iterdir()] == ["seen.json"]


@pytest.mark.parametrize("text", ["", "[]", "{", '{"ada.laptop": "yesterday"}', "\xff"])
def test_a_spoilt_memory_tells_nothing(text: str, tmp_path: Path) -> None:
    """And keeps nobody from being seen."""
    file = tmp_path / "seen.json"
    file.write_bytes(text.encode("latin-1"))

    assert seen(file, [ADA], 100) == {"ada.laptop": 100}
