"""How the rehearsal finds the rows of its tables."""

import sys
from pathlib import Path

import pytest

from bedplate.rehearsal.discovery import find_rows
from bedplate.rehearsal.lookups.lookup import Lookup

ROW = """
from dataclasses import replace
from bedplate.rehearsal.lookups import LOOKUPS

ROW = replace(LOOKUPS["aws:index/getRegion:getRegion"], token="{}")
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of an empty package named rows."""
    folder = tmp_path / "rows"
    folder.mkdir()
    (folder / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    for name in [name for name in sys.modules if name.partition(".")[0] == "rows"]:
        monkeypatch.delitem(sys.modules, name)
    return folder


def test_a_new_module_is_enough_for_a_new_row(package: Path) -> None:
    """No table names it; a row that a module imports is found once."""
    (package / "first.py").write_text(ROW.format("t:t:First"))
    (package / "second.py").write_text("from rows.first import ROW\n")

    assert list(find_rows("rows", [str(package)], Lookup)) == ["t:t:First"]


def test_two_rows_for_one_type_are_refused(package: Path) -> None:
    """One would silently replace the other."""
    for name in ("first", "second"):
        (package / f"{name}.py").write_text(ROW.format("t:t:Same"))

    with pytest.raises(AssertionError, match=r"rows\.second has a second row for t:t:Same"):
        find_rows("rows", [str(package)], Lookup)
