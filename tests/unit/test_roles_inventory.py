"""The inventory that plain pyinfra reads: which machines it names, and what it says of a file that it cannot use."""

import runpy
from pathlib import Path

import pytest

from bedplate.cli import run

INVENTORY = str(Path(__file__).parents[2] / "roles" / "inventory.py")


def test_standing_machines_go_by_their_names(lab: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once the plan is recorded."""
    monkeypatch.setenv("BEDPLATE_FLEET", str(lab))
    run(["plan", str(lab), "--write"])

    names = [name for name, _ in runpy.run_path(INVENTORY)["nodes"]]

    assert "titan-01.cellar" in names


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("\nowner:", "\nowned:", "E101 unknown-key"),
        ("\nowner:", "\nowner:", "error: not recorded in fleet.lock: region/us-west-2"),
    ],
    ids=["wrong", "not recorded"],
)
def test_a_file_that_cannot_be_used_is_told_without_a_traceback(  # noqa: PLR0913, PLR0917  two are fixtures of pytest's
    old: str,
    new: str,
    told: str,
    lab: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """In the command line's own lines, with its exit status."""
    monkeypatch.setenv("BEDPLATE_FLEET", str(lab))
    lab.write_text(lab.read_text(encoding="utf-8").replace(old, new, 1), encoding="utf-8")

    with pytest.raises(SystemExit) as ended:
        runpy.run_path(INVENTORY)

    assert ended.value.code == 2
    assert told in capsys.readouterr().err
