"""The program of a session without bp and a hub: what it keeps, what it leaves, and what it counts as work."""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from bedplate.programs.agent import changes
from bedplate.programs.agent.changes import keep_changes
from bedplate.programs.agent.notebook import Notebook

_VALUE = 'first "line"\nsecond line of it'
_NOTEBOOK = '{"text": "%s"}'
Keep = Callable[..., set[str]]


@pytest.fixture
def keep(tmp_path: Path) -> Keep:
    """Return what keeps files by their names, and returns the names of those in the output."""

    def keep(files: dict[str, str], secrets: "list[str] | None", since: float = 0.0) -> set[str]:
        for name, text in files.items():
            (tmp_path / "work" / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "work" / name).write_text(text)
        keep_changes(tmp_path / "work", tmp_path / "output", since, secrets)
        return {str(path.relative_to(tmp_path / "output")) for path in (tmp_path / "output").rglob("*.*")}

    return keep


def test_a_secret_is_kept_in_no_form(keep: Keep, capsys: pytest.CaptureFixture[str]) -> None:
    """Not escaped in a notebook, not as a line of it, and not in a file of a name for secrets."""
    forms = {"raw.txt": _VALUE, "line.txt": "x second line of it x", "lines.ipynb": _NOTEBOOK % 'first \\"line\\"'}
    forms["escaped.ipynb"] = _NOTEBOOK % 'first \\"line\\"\\nsecond line of it'
    forms |= {"accent.json": _NOTEBOOK % "caf\\u00e9", ".env": "x", "keys/id_ed25519": "x", "tls.pem": "x"}

    kept = keep({**forms, "model.py": "second", ".env.example": "x"}, [_VALUE, "café"])

    assert kept == {"model.py", ".env.example"}
    output = capsys.readouterr().out
    assert all(ascii(name) in output for name in ("raw.txt", ".env", "tls.pem"))


def test_without_the_secrets_nothing_is_kept(keep: Keep, capsys: pytest.CaptureFixture[str]) -> None:
    """Nobody could tell which file has one, and the log says so."""
    assert not keep({"model.py": "x"}, None)
    assert capsys.readouterr().out == "not kept, the secrets of the session cannot be read: 'model.py'\n"


def test_small_files_are_kept_first(
    keep: Keep, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A folder of data or programs does not use up what is for a notebook; what is not kept is named."""
    monkeypatch.setattr(changes, "_LARGEST", 50)
    files = {f"data/{number}.bin": "x" * 40 for number in range(9)}

    kept = keep({**files, "work.ipynb": "cells", ".venv/pyvenv.cfg": "", ".venv/lib/a.py": ""}, [])

    assert kept == {"work.ipynb", "data/0.bin"}
    output = capsys.readouterr().out
    assert "over 100 MB in all: 'data/1.bin', " in output
    assert "and 3 more" in output
    assert ": '.venv'\n" in output


def test_a_file_with_an_old_time_is_kept(keep: Keep, tmp_path: Path) -> None:
    """Archives and `cp -p` set the former time of a change; files of the code were there before."""
    work = tmp_path / "work"
    work.mkdir()
    (work / "code.py").write_text("x")
    start = (work / "code.py").stat().st_ctime + 0.001
    while (work / "copied.py").write_text("x") and (work / "copied.py").stat().st_ctime < start:
        pass
    os.utime(work / "copied.py", (0, 0))

    assert keep({}, [], start) == {"copied.py"}


def test_the_output_of_a_program_stays(keep: Keep, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A changed file of the same path does not replace it."""
    (tmp_path / "output").mkdir()
    (tmp_path / "output/model.bin").write_text("result")

    keep({"model.bin": "changed"}, [])

    assert (tmp_path / "output/model.bin").read_text() == "result"
    assert "'model.bin'" in capsys.readouterr().out


def test_a_kernel_has_no_debugger(tmp_path: Path) -> None:
    """Its port would take orders from all accounts of the machine."""
    (tmp_path / "environment/lib/python3/site-packages").mkdir(parents=True)
    (tmp_path / "environment/bin").mkdir()
    (tmp_path / "environment/bin/python").symlink_to(sys.executable)

    Notebook(tmp_path / "environment", tmp_path, {"PATH": ""})

    assert not json.loads((tmp_path / "kernels/python3/kernel.json").read_text())["metadata"]["debugger"]
