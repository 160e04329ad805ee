"""How a command ends: its exit status, and the messages on stderr."""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from bedplate import cli
from bedplate.cli import INTERRUPTED, run
from bedplate.cli.output import BROKEN_PIPE, notify, show
from bedplate.errors import HeldError, InputError, MachineError, PartialError, ViolationError

ROOT = Path(__file__).parents[2]


def _fail_with(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every command raise the error."""

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
        (PartialError("half"), 6),
        (KeyboardInterrupt(), INTERRUPTED),
        (RuntimeError("boom"), 1),
    ],
)
def test_each_error_has_its_status(error: BaseException, status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every class of errors has its own exit status."""
    _fail_with(error, monkeypatch)

    assert run(["check"]) == status


def test_an_internal_error_hides_its_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An internal error is one line, with the way to report it."""
    _fail_with(RuntimeError("boom"), monkeypatch)

    run(["check"])

    errors = capsys.readouterr().err
    assert errors.startswith("error: internal error: RuntimeError: boom\n")
    assert "Traceback" not in errors


@pytest.mark.parametrize(("arguments", "setting"), [(["--traceback", "check"], ""), (["check"], "1")])
def test_an_internal_error_can_show_its_traceback(
    arguments: list[str],
    setting: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """By the option or by the environment."""
    _fail_with(RuntimeError("boom"), monkeypatch)
    monkeypatch.setenv("BEDPLATE_TRACEBACK", setting)

    run(arguments)

    assert "Traceback (most recent call last)" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message", "command"),
    [
        (["chek"], "No such command 'chek'. Did you mean 'check'", "bedplate"),
        (["deploy"], "No such command 'deploy'. Did you mean 'up'?", "bedplate"),
        (["version"], "No such command 'version'.\n", "bedplate"),
        (["bundle", "promote"], "Missing argument 'RING'. Choose from: stable, canary\n", "bedplate bundle promote"),
        (["plan", "--relase", "x"], "No such option: --relase", "bedplate plan"),
        (["vpn", "sync", "a.yaml", "b.yaml"], "unexpected extra argument", "bedplate vpn sync"),
    ],
)
def test_an_invalid_command_line_is_refused(
    arguments: list[str], message: str, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Status 2, one line that names the word, and the help of the command."""
    assert run(arguments) == 2

    out, err = capsys.readouterr()
    assert out == ""
    assert message in err
    assert f"see `{command} --help`" in err


@pytest.mark.parametrize(
    ("command", "fix"),
    [
        ("person invite Ada", "write ada"),
        ("vpn add ada.phone", "write ada --device phone"),
        ("vpn show ada --device MacBook.local", "write macbook"),
        ("vpn show ada@lab.example", "write ada"),
        ("kube access bob", "write one of ada, grace"),
        ("check --explain e530", "write W530; `bedplate check --explain all` lists all rules"),
        ("check --explain no-people", "write W530; `bedplate check --explain all` lists all rules"),
        ("node bootstrap box-1.us-west-2", "`bedplate node list` shows all machines"),
        ("node start workbench-gpu 9", "write 8, or raise `groups.workbench-gpu.nodes.max`"),
        ("image bake train", "write one of workbench-x86_64, workbench-x86_64-580-open-frameworks, worker-x86_64,"),
        ("up --stack lab.shared", "use a folder made by `bedplate init`, or the clone"),
        ("recover --stack us-west", "write one of shared, us-west-2, us-east-1, eu-north-1, links"),
        ("capacity pause titan", "write train"),
        ("reach box-1.us-west-2 us-east-1a", "write hub.us-west-2"),
    ],
)
def test_a_wrong_argument_gets_the_right_one(
    command: str, fix: str, lab: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Status 2, and a fix for this word: before any credentials or machine are needed."""
    assert run([*command.split(), "--fleet", str(lab)]) == 2

    assert f"  fix  {fix}" in capsys.readouterr().err


def test_output_cannot_control_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """Escapes, and controls of the direction of text, in answers of machines are replaced."""
    show(["a\x1b]0;owned\x07\tb"])
    notify(["\u202ec"])

    assert capsys.readouterr() == ("a\ufffd]0;owned\ufffd\tb\n", "\ufffdc\n")


def test_a_closed_pipe_is_no_error() -> None:
    """`bedplate plan | head` ends silently when the reader closes the pipe."""
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


DRY_RUN = (sys.executable, "-m", "bedplate", "node", "apply", "nas.cellar", "--check", "--fleet", "examples/lab.yaml")


@pytest.mark.parametrize("way", ["broken pipe", "closed", "full"])
def test_a_closed_or_full_stderr_does_not_stop_a_command(way: str) -> None:
    """The command runs to its end and prints its whole result on stdout."""
    reader, writer = os.pipe()
    os.close(reader)
    stderr = {"broken pipe": "", "closed": "2>&-", "full": "2>/dev/full"}[way]

    ended = subprocess.run(
        ["sh", "-c", f'"$@" {stderr}', "sh", *DRY_RUN],
        stdout=subprocess.PIPE,
        stderr=writer,
        check=False,
        cwd=ROOT,
    )
    os.close(writer)

    assert ended.returncode == PartialError.exit_code
    assert b"its host key is not recorded" in ended.stdout
    assert b"not done: nas.cellar" in ended.stdout


@pytest.mark.parametrize(
    ("redirection", "message"),
    [(">&-", "cannot write to stdout: it is closed"), (">/dev/full", "No space left on device")],
)
def test_an_unwritable_stdout_is_an_error_of_the_machine(redirection: str, message: str) -> None:
    """Status 4, with the reason on stderr. It is not an internal error."""
    ended = subprocess.run(
        ["sh", "-c", f'"$@" {redirection}', "sh", *DRY_RUN], stderr=subprocess.PIPE, check=False, cwd=ROOT, text=True
    )

    assert ended.returncode == MachineError.exit_code
    assert message in ended.stderr.splitlines()[-2]
    assert "internal error" not in ended.stderr


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
def test_quick_commands_import_no_slow_library(arguments: list[str]) -> None:
    """Pulumi and boto3 take seconds to import, and commands that only read the fleet file do not need them."""
    ended = subprocess.run(
        [sys.executable, "-c", PROBE.format(slow=SLOW), *arguments],
        capture_output=True,
        check=True,
        text=True,
        cwd=ROOT,
    )

    assert ended.stderr.splitlines()[-1] == "0"


def test_vpn_add_imports_no_models_of_a_fleet(tmp_path: Path) -> None:
    """The models take a quarter of a second, and `vpn add` takes a third: it only reads the names of people."""
    fleet = str(shutil.copy(ROOT / "examples/lab.yaml", tmp_path / "fleet.yaml"))
    models = (*SLOW, "bedplate.spec.fleet", "bedplate.plan.fleet", "jinja2")
    probe = [sys.executable, "-c", PROBE.format(slow=models), "vpn"]

    ended = [
        subprocess.run([*probe, *verb, fleet], capture_output=True, check=True, text=True, cwd=ROOT)
        for verb in (["init"], ["add", "ada"])
    ]

    imported = [command.stderr.splitlines()[-1].split() for command in ended]
    assert {"bedplate.plan.fleet", "bedplate.spec.fleet"} <= set(imported[0])
    assert imported[1] == ["0"]


def test_a_rehearsal_ignores_the_aws_profile() -> None:
    """The import of moto opens a session, which must not fail for an unknown profile."""
    ended = subprocess.run(
        [sys.executable, "-c", "import bedplate.rehearsal.simulation"],
        capture_output=True,
        check=False,
        text=True,
        cwd=ROOT,
        env={"AWS_PROFILE": "somebody", "AWS_CONFIG_FILE": str(ROOT / "README.md")},
    )

    assert (ended.returncode, ended.stderr) == (0, "")
