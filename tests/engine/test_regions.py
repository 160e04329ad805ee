"""Several regions with Pulumi's real engine: failures, Ctrl-C in each phase, a removed region.

Skipped without `pulumi` and `pulumi-language-python` on PATH. The folder of tests/unit/test_deploy.py replays recorded
runs of the same fleet.
"""

import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from bedplate.cli import run
from tests.conftest import DATA
from tests.testlab.engine.command import simulated_aws

PROGRAM = "name: bedplate\nruntime: {name: python, options: {toolchain: pip, virtualenv: .venv}}\n"
MAIN = """from pathlib import Path
from bedplate.operate.program import declare_stack
declare_stack(Path(__file__).parent)
"""
SECONDS = 600


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return a fleet folder of three regions; AWS refuses the resources that its file `fault` names."""
    (tmp_path / "fleet.yaml").write_text((DATA / "engine/trio.yaml").read_text())
    (tmp_path / "Pulumi.yaml").write_text(PROGRAM)
    (tmp_path / "__main__.py").write_text(MAIN)
    (tmp_path / ".venv").symlink_to(sys.prefix)
    monkeypatch.chdir(tmp_path)
    with simulated_aws(tmp_path, "tests.testlab.engine.faulty", str(tmp_path / "fault")):
        yield tmp_path


@pytest.mark.nightly
def test_three_regions_fail_stop_and_continue(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One region fails, Ctrl-C in each phase, one region is removed: the same command continues, nothing is lost."""
    (folder / "fault").write_text("Subnet::trio-eu-north-1")
    assert run(["up", "--yes"]) == 6
    output, errors = capsys.readouterr()
    assert results(output) == ["up done", "up done", "up done", "up failed", "up skipped"]
    assert "trio.eu-north-1 aws:ec2/subnet:Subnet trio-eu-north-1a" in errors
    assert "run `bedplate up fleet.yaml` again: it continues" in errors
    (folder / "fault").unlink()

    assert stopped(["preview"], "trio.us-west-2           preview") == 130
    assert stopped(["up"], "deploy?") == 130
    assert stopped(["up", "--yes"], "trio.eu-north-1          up") == 6
    assert stopped(["up", "--yes"], "trio.links               up") == 6
    assert run(["up", "--yes"]) == 0
    capsys.readouterr()
    assert (run(["up"]), capsys.readouterr().out) == (0, "no change\n")

    fleet = (folder / "fleet.yaml").read_text()
    (folder / "fleet.yaml").write_text(fleet.replace("  eu-north-1:\n    zones: [eu-north-1a]\n", ""))
    assert run(["up", "--yes"]) == 0
    assert results(capsys.readouterr().out) == ["up done", "up done", "up done", "destroy done", "up done"]
    assert (run(["up"]), capsys.readouterr().out) == (0, "no change\n")

    assert run(["destroy", "--yes"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1].startswith("kept resources cost 7.00 USD/month, and their data 0.023 per GiB in buckets")
    assert (run(["destroy"]), capsys.readouterr().out.splitlines()[0]) == (0, "nothing is deployed")


def results(output: str) -> list[str]:
    """Return the operation and the status of each stack, in order, from the last lines of a command."""
    rows = [line.split() for line in output.splitlines()]
    return [" ".join(row[1:3]) for row in rows if row[1:2] in (["up"], ["destroy"])]


def stopped(arguments: Sequence[str], text: str) -> int:
    """Run a command on a terminal, press Ctrl-C when a text has appeared, and return the exit status."""
    command = [sys.executable, "-m", "tests.testlab.engine.command", *arguments]
    ours, theirs = pty.openpty()
    with subprocess.Popen(command, stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        assert process.stdout
        os.set_blocking(process.stdout.fileno(), False)
        seen, end = "", time.monotonic() + SECONDS
        while text not in seen:
            assert time.monotonic() < end, seen
            assert process.poll() is None, seen
            seen += (process.stdout.read() or b"").decode()
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        os.set_blocking(process.stdout.fileno(), True)
        process.stdout.read()
        status = process.wait(SECONDS)
    os.close(ours)
    os.close(theirs)
    return status
