"""How a command ends: its exit status, and what is told on stderr."""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from bedplate import cli
from bedplate.cli import INTERRUPTED, run
from bedplate.cli.output import BROKEN_PIPE
from bedplate.errors import HeldError, InputError, MachineError, PartError, ViolationError

ROOT = Path(__file__).parents[2]


def _ends_with(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let any command raise `error`."""

    def invoke(_: Sequence[str]) -> int:
        raise error

    monkeypatch.setattr(cli, "_invoke", invoke)


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (InputError("wrong"), 2),
        (ViolationError("drifted"), 3),
        (MachineError("full"), 4),
        (HeldError("held"), 5),
        (PartError("half"), 6),
        (KeyboardInterrupt(), INTERRUPTED),
        (RuntimeError("boom"), 1),
    ],
)
def test_each_ending_has_its_status(error: BaseException, status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Scripts tell the cases apart by the exit status alone."""
    _ends_with(error, monkeypatch)

    assert run(["check"]) == status


def test_a_defect_hides_its_traceback(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """An operator gets one sentence, and how to see more."""
    _ends_with(RuntimeError("boom"), monkeypatch)

    run(["check"])

    said = capsys.readouterr().err
    assert said.startswith("error: a defect in bedplate: RuntimeError: boom\n")
    assert "Traceback" not in said


@pytest.mark.parametrize(("arguments", "setting"), [(["--traceback", "check"], ""), (["check"], "1")])
def test_a_defect_shows_its_traceback_when_asked(
    arguments: list[str],
    setting: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """By the option or by the environment."""
    _ends_with(RuntimeError("boom"), monkeypatch)
    monkeypatch.setenv("BEDPLATE_TRACEBACK", setting)

    run(arguments)

    assert "Traceback (most recent call last)" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["chek"], "No such command 'chek'. Did you mean 'check'"),
        (["plan", "--relase", "x"], "No such option: --relase"),
        (["check", "a.yaml", "b.yaml"], "unexpected extra argument"),
    ],
)
def test_a_wrong_command_line_is_refused(arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Status 2, one line that names the word, and where to look."""
    assert run(arguments) == 2

    out, err = capsys.readouterr()
    assert out == ""
    assert told in err
    assert "`bedplate --help`" in err


def test_a_reader_that_leaves_is_no_fault() -> None:
    """`bedplate plan | head` ends in silence, as other programs do when their pipe is closed."""
    reader, writer = os.pipe()
    os.close(reader)

    ended = subprocess.run(
        [sys.executable, "-m", "bedplate", "schema"],
        stdout=writer,
        stderr=subprocess.PIPE,
        check=False,
        cwd=ROOT,
    )
    os.close(writer)

    assert (ended.returncode, ended.stderr) == (BROKEN_PIPE, b"")


LOOK = (sys.executable, "-m", "bedplate", "node", "apply", "nas.cellar", "--check", "--fleet", "examples/lab.yaml")


@pytest.mark.parametrize("way", ["left", "closed", "full"])
def test_nobody_who_reads_the_news_ends_no_work(way: str) -> None:
    """Whatever becomes of stderr, the command goes on to its end and its answer comes whole."""
    reader, writer = os.pipe()
    os.close(reader)
    news = {"left": "", "closed": "2>&-", "full": "2>/dev/full"}[way]

    ended = subprocess.run(
        ["sh", "-c", f'"$@" {news}', "sh", *LOOK], stdout=subprocess.PIPE, stderr=writer, check=False, cwd=ROOT
    )
    os.close(writer)

    assert ended.returncode == PartError.exit_code
    assert b"its host key is not recorded" in ended.stdout
    assert b"not done: nas.cellar" in ended.stdout


@pytest.mark.parametrize(("answer", "told"), [(">&-", "stdout is closed"), (">/dev/full", "No space left on device")])
def test_an_answer_that_cannot_be_given_is_this_machine_s_fault(answer: str, told: str) -> None:
    """It is told on stderr, and is no defect of ours."""
    ended = subprocess.run(
        ["sh", "-c", f'"$@" {answer}', "sh", *LOOK], stderr=subprocess.PIPE, check=False, cwd=ROOT, text=True
    )

    assert ended.returncode == MachineError.exit_code
    assert told in ended.stderr.splitlines()[-2]
    assert "defect" not in ended.stderr


SLOW = ("boto3", "hypothesis", "moto", "pulumi", "pulumi_aws", "rich")

PROBE = """
import sys
from bedplate.cli import run
status = run(sys.argv[1:])
print(status, *sorted(sys.modules.keys() & set({slow!r})), file=sys.stderr)
"""


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["check", "examples/lab.yaml"],
        ["plan", "examples/lab.yaml"],
        ["schema"],
        ["check", "--explain", "E301"],
    ],
)
def test_no_slow_library_is_imported(arguments: list[str]) -> None:
    """An SDK takes seconds to import, and what only reads the fleet file needs none."""
    ended = subprocess.run(
        [sys.executable, "-c", PROBE.format(slow=SLOW), *arguments],
        capture_output=True,
        check=True,
        text=True,
        cwd=ROOT,
    )

    assert ended.stderr.splitlines()[-1] == "0"


def test_a_certificate_is_issued_without_the_models_of_a_fleet(tmp_path: Path) -> None:
    """They take a quarter of a second, and `vpn add` is to answer in a third: it asks the file for people alone."""
    fleet = str(shutil.copy(ROOT / "examples/lab.yaml", tmp_path / "fleet.yaml"))
    models = (*SLOW, "bedplate.spec.fleet", "bedplate.plan.fleet", "jinja2")
    probe = [sys.executable, "-c", PROBE.format(slow=models), "vpn"]

    ended = [
        subprocess.run([*probe, *verb, fleet], capture_output=True, check=True, text=True, cwd=ROOT)
        for verb in (["init"], ["add", "ada"])
    ]

    assert [each.stderr.splitlines()[-1] for each in ended] == ["0 bedplate.plan.fleet bedplate.spec.fleet", "0"]


def test_a_rehearsal_starts_whatever_the_aws_profile() -> None:
    """An import of moto opens a session, before any simulation runs; a profile unknown here must not end it."""
    ended = subprocess.run(
        [sys.executable, "-c", "import bedplate.rehearsal.simulation"],
        capture_output=True,
        check=False,
        text=True,
        cwd=ROOT,
        env={"AWS_PROFILE": "somebody", "AWS_CONFIG_FILE": str(ROOT / "README.md")},
    )

    assert (ended.returncode, ended.stderr) == (0, "")
