"""The program of a session without bp and a hub: what it keeps, what it leaves, and what it counts as work."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from bedplate.programs.agent import changes
from bedplate.programs.agent.changes import keep_changes
from bedplate.programs.agent.ends import remove_secrets
from bedplate.programs.agent.notebook import Notebook
from bedplate.programs.agent.run import Run
from tests.testlab.fakes.laptop import oldest_python
from tests.testlab.fakes.runs import ROOT

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


# An agent with a session, whose folder is the first word.
_AGENT = """
import fcntl, os, subprocess, sys, time
from pathlib import Path
from bedplate.programs.agent import session as program, sockets
from bedplate.programs.agent.ranks import adopt
from bedplate.programs.program import ProgramError
adopt()
folder = Path(sys.argv[1])
if os.fork():
    sys.exit(os.WEXITSTATUS(os.wait()[1]))
told = {"BEDPLATE_AGENT": "/nonexistent", "BEDPLATE_IDLE": "3600", "BEDPLATE_SESSION": "ssh", **os.environ}
session = program.Session(folder, told)
active = folder / "session/active"
def is_work():
    former = time.time() - 60
    os.utime(active, (former, former))
    session._look()
    return active.stat().st_mtime > former + 1
"""
_WAIT = """
import sys
from pathlib import Path
from threading import Timer
from bedplate.programs.agent import sockets
sockets._SILENCE = 0.3
Timer(1, (Path(sys.argv[1]) / "end.json").touch).start()
try:
    sockets.start_in(Path(sys.argv[1]), Path(sys.argv[1]))
except sockets.ProgramError as error:
    sys.exit(str(error))
"""


def session(tmp_path: Path, script: str) -> str:
    """Return what a script prints that has a session; its errors are checked."""
    (tmp_path / "run").mkdir()
    variables = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "XDG_RUNTIME_DIR": str(tmp_path)}
    words = (oldest_python(), "-c", f"{_AGENT}{script}", str(tmp_path / "run"))
    done = subprocess.run(words, env=variables, capture_output=True, text=True, timeout=60, check=False)
    assert not done.returncode, done.stderr
    return done.stdout


def test_a_detached_program_is_work(tmp_path: Path) -> None:
    """What has left its parent, such as tmux, is a child of the agent: it keeps its session."""
    burn = "import time\nwhile time.process_time() < 0.5: pass\nopen('burnt', 'w')"
    script = f"""
print(is_work(), flush=True)
subprocess.run(["sh", "-c", 'setsid "$0" -c "$1" &', sys.executable, {burn!r}], cwd=folder, check=True)
while not (folder / "burnt").exists(): time.sleep(0.01)
session._at = time.monotonic() - 1
print(is_work())
"""
    assert session(tmp_path, script).split()[-1] == "True"


def test_a_run_that_waits_for_the_hub_is_no_work(tmp_path: Path) -> None:
    """Its end is in its folder: while the hub is away, that does not keep its session."""
    script = """
program._LEAST = 1000
own = folder / "own"
own.mkdir()
session._runs[1] = own
print(is_work())
(own / "end.json").touch()
print(is_work())
"""
    assert session(tmp_path, script).split() == ["True", "False"]


def test_a_run_that_does_not_start_is_refused(tmp_path: Path) -> None:
    """Its agent cannot be started, or a look has the lock for a moment; a run that has the lock goes on."""
    script = """
session._listen(sockets.RUN, session._start_run)
log = (folder / "unit").open("a")
fcntl.flock(log, fcntl.LOCK_SH)
print(sockets.is_locked(folder / "unit"))
log.close()
try:
    sockets.start_in(folder, folder)
    print("started")
except ProgramError as error:
    print("refused")
log = (folder / "unit").open("a")
fcntl.flock(log, fcntl.LOCK_EX)
sockets.start_in(folder, folder)
"""
    lines = session(tmp_path, script).splitlines()

    assert lines[0] == "False"
    assert lines[1].startswith("run does not start: ")
    assert lines[2:] == ["refused"]


def test_the_secrets_of_a_killed_session_are_removed(tmp_path: Path) -> None:
    """Its folder has a script with all variables; other folders stay."""
    script = """
(folder / "session/shell").write_text("export TOKEN=x")
print(os.path.realpath(folder / "session"), flush=True)
"""
    sockets = Path(session(tmp_path, script).strip())
    assert (sockets / "shell").exists()

    remove_secrets(tmp_path / "run")

    assert not sockets.exists()
    (tmp_path / "run/session").unlink()
    (tmp_path / "run/session").symlink_to(tmp_path / "kept")
    (tmp_path / "kept").mkdir()
    remove_secrets(tmp_path / "run")
    assert (tmp_path / "kept").exists()


def test_the_key_of_a_session_is_removed_before_copies(tmp_path: Path) -> None:
    """A copy takes a while, and may be killed."""
    script = """
for name in ("shell", "keys", "host_key"):
    (folder / "session" / name).touch()
program.keep_changes = lambda *_: print(sorted(os.listdir(folder / "session")))
session._told.update(BEDPLATE_OUTPUT=str(folder), BEDPLATE_PARAMS=str(folder))
session._end(subprocess.Popen("true"))
"""
    assert session(tmp_path, script) == "['active']\n"


def test_a_session_that_waits_is_named_once(tmp_path: Path) -> None:
    """Who waits for it sees why; a session that ends first is an error."""
    (tmp_path / "end").mkdir()

    words = (oldest_python(), "-c", _WAIT, str(tmp_path / "end"))
    environment = {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=60, check=False)

    assert done.returncode == 1
    assert done.stderr == "waits until the session end has started\nno session end runs here\n"


def test_a_warning_may_be_removed_at_any_time(tmp_path: Path) -> None:
    """The session removes it when there is work again, also between a look and its read: reports go on."""
    (tmp_path / "session/warning").mkdir(parents=True)
    parts = {"_witness": SimpleNamespace(idle=lambda: 0.0), "_hub": SimpleNamespace(now=0.0), "_folder": tmp_path}
    run = SimpleNamespace(**parts, _ran="ran", _had=0.0, _told={"SESSION": "ssh"})

    assert Run._signs(cast("Run", run))["warning"] == "-"  # noqa: SLF001  a race, which no test meets by chance
