"""`bedplate node audit` and progress without reachable machines (those are in tests/nodes)."""

import json
import os
import pty
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from io import StringIO
from pathlib import Path
from threading import Thread

import pytest
from rich.console import Console
from testinfra.backend.base import CommandResult

from bedplate.cli import run
from bedplate.cli.options import Terminal
from bedplate.cli.progress import Board, Row, take_event
from bedplate.compliance.ledger import unreached_reason
from bedplate.files import check_files_exist
from bedplate.nodes import audit
from bedplate.nodes.apply import ApplyRequest, Event, NodeResult, Step, Target
from bedplate.nodes.audit import AuditRequest, Findings, RuleOutcome, run_audit
from bedplate.operate.apply import apply_order, audit_nodes
from bedplate.plan.nodes import permanent_nodes
from tests.testlab.fakes.reports import Recorder
from tests.testlab.rehearsal.programs import EXAMPLES, plan_of
from tests.testlab.run import need_program

LAB = ["--fleet", str(EXAMPLES / "lab.yaml")]


@pytest.fixture
def nowhere(tmp_path: Path) -> str:
    """Return an OpenSSH configuration that leads every machine to a closed port."""
    need_program("ssh")
    file = tmp_path / "ssh_config"
    file.write_text("Host *\n  HostName 127.0.0.1\n  Port 9\n")
    return str(file)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        pytest.param(["titan-1.cellar"], "write titan-01.cellar", id="machine"),
        pytest.param(["titan-01.cellar", "--role", "baselin"], "write baseline", id="role"),
        pytest.param(
            ["nas.cellar", "--role", "baseline", "--role", "workbench"], "has the role workbench", id="its role"
        ),
        pytest.param(["--group", "trian"], "write train", id="group"),
        pytest.param(["titan-01.cellar", "--junit", "nowhere/audit.xml"], "mkdir -p", id="folder"),
        pytest.param(["titan-01.cellar", "--junit", "."], "name a file", id="a folder"),
        pytest.param(["--local"], "--local checks one machine", id="local"),
        pytest.param(["titan-01.cellar", "--ssh-config", "missing"], "no such file", id="config"),
        pytest.param(["titan-01.cellar", "--ssh-config", "."], "is a folder", id="config a folder"),
    ],
)
def test_what_cannot_be_meant_is_refused(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Status 2 before any machine is reached, with the most similar name."""
    assert run(["node", "audit", *words, *LAB]) == 2

    assert message in capsys.readouterr().err


def test_a_configuration_of_ssh_may_be_a_device() -> None:
    """`ssh -F /dev/null` ignores all settings."""
    check_files_exist(Path("/dev/null"))


def test_machines_that_are_not_reached_are_named(nowhere: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Status 6, with OpenSSH's message."""
    assert run(["node", "audit", "nas.cellar", "gate.cellar", *LAB, "--ssh-config", nowhere, "--json"]) == 6

    nodes = json.loads(capsys.readouterr().out)["nodes"]
    assert [(node["node"], node["verdicts"]) for node in nodes] == [("nas.cellar", []), ("gate.cellar", [])]
    assert all("Connection refused" in node["unreached"] for node in nodes)


def test_a_machine_whose_key_nobody_recorded_is_not_asked(capsys: pytest.CaptureFixture[str]) -> None:
    """An unknown host key is not accepted; the output names the command that records it."""
    assert run(["node", "audit", "nas.cellar", *LAB]) == 6

    assert "its host key is not recorded" in capsys.readouterr().out


def test_everything_may_be_asked_for_by_name_or_by_none(capsys: pytest.CaptureFixture[str]) -> None:
    """--all is the default; beside names, each machine is checked once."""
    every = {node.name for node in permanent_nodes(plan_of(EXAMPLES / "lab.yaml"))}

    for words in (["--all"], ["nas.cellar", "--all"], []):
        assert run(["node", "audit", *words, *LAB, "--json"]) == 6

        nodes = [node["node"] for node in json.loads(capsys.readouterr().out)["nodes"]]
        assert (len(nodes), {*nodes}) == (len(every), every)


def test_files_for_others_are_written_whatever_was_found(nowhere: str, tmp_path: Path) -> None:
    """Reports are written also if rules fail."""
    junit, page = tmp_path / "audit.xml", tmp_path / "audit.html"
    where = ["--ssh-config", nowhere, "--junit", str(junit), "--html", str(page)]

    assert run(["node", "audit", "nas.cellar", *LAB, *where]) == 6

    assert "Connection refused" in junit.read_text()
    assert "Connection refused" in page.read_text()


def test_a_device_is_refused_before_a_machine_is_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A report would replace the device; --json prints to stdout."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)

    assert run(["node", "audit", "nas.cellar", *LAB, "--junit", str(pipe)]) == 4

    output = capsys.readouterr()
    assert ("it is not a regular file" in output.err, output.out) == (True, "")
    assert pipe.is_fifo()


def test_what_is_otherwise_is_told_in_an_operators_words(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command that failed by its line, its status and what it said; no object of the checks' own shows.

    Also for whoever has Python leave assertions out, by which the checks judge.
    """
    monkeypatch.setenv("PYTHONOPTIMIZE", "1")

    assert run(["node", "audit", "nas.cellar", "--local", "--role", "monitoring", *LAB, "--json"]) == 3

    (node,) = json.loads(capsys.readouterr().out)["nodes"]
    words = "\n".join(verdict["words"] for verdict in node["verdicts"])
    assert "` ended with " in words
    assert "prometheus-node-exporter is not enabled" in words
    assert not any(sign in words for sign in ("CommandResult", " at 0x", "<testinfra", "IndexError"))


def test_a_gateway_without_recorded_resolvers_is_not_judged(capsys: pytest.CaptureFixture[str]) -> None:
    """Status 6, with the command that records them: the plan has no OpenVPN settings to compare with."""
    assert run(["node", "audit", "gate.cellar", "--local", "--role", "openvpn", *LAB, "--json"]) == 6

    (node,) = json.loads(capsys.readouterr().out)["nodes"]
    assert {verdict["outcome"] for verdict in node["verdicts"]} == {"unknown"}
    assert all("bedplate vpn record" in verdict["words"] for verdict in node["verdicts"])


def test_an_audit_without_a_rule_is_refused(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Status 2: zero rules are not a passed audit."""
    monkeypatch.setattr("bedplate.operate.apply.audit_nodes", lambda *_: (Findings("gate.cellar", apart=9),))

    assert run(["node", "audit", "gate.cellar", "--local", "--role", "storage", *LAB]) == 2

    assert "no rule applies to these machines" in capsys.readouterr().err


def test_several_roles_are_judged(capsys: pytest.CaptureFixture[str]) -> None:
    """The option --role can be repeated."""
    options = ["--role", "monitoring", "--role", "storage"]

    assert run(["node", "audit", "titan-03.cellar", "--local", *options, *LAB, "--json"]) == 3

    (node,) = json.loads(capsys.readouterr().out)["nodes"]
    assert {verdict["role"] for verdict in node["verdicts"]} == {"monitoring", "storage"}


@pytest.mark.parametrize(
    ("stderr", "advice"),
    [
        ("@@@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @@@\nHost key verification failed.", "--replace"),
        ("ubuntu@nas: Permission denied (publickey).", "another account with --user"),
        ("sudo: a password is required", "sudo asks for a password"),
    ],
    ids=["another key", "another account", "no sudo"],
)
def test_who_is_not_let_in_is_told_what_to_do(stderr: str, advice: str) -> None:
    """As for `node apply`, with the last message of OpenSSH or sudo."""
    answer = CommandResult(None, 255, b"true", "", stderr)

    class Silent:
        def run(self, _command: str) -> CommandResult:
            raise RuntimeError(answer)

    assert advice in unreached_reason("nas.cellar", Silent())


CLI_NODE_PROGRESS_LAB = EXAMPLES / "lab.yaml"
MONITORING = AuditRequest(CLI_NODE_PROGRESS_LAB, only=frozenset({"monitoring"}))
OPERATOR = Terminal(CLI_NODE_PROGRESS_LAB)
NODES = permanent_nodes(plan_of(CLI_NODE_PROGRESS_LAB))
NOBODY = ("sh", "-c", "sleep 1; echo 'Connection refused' >&2; exit 255")
WAITS = "waits for another program that installs packages"


@contextmanager
def _terminal(monkeypatch: pytest.MonkeyPatch, rows: int) -> Iterator[list[bytes]]:
    """Make stderr a terminal with this number of rows, and return its output."""
    ours, theirs = pty.openpty()
    for name, value in (("COLUMNS", "100"), ("LINES", str(rows)), ("TERM", "xterm")):
        monkeypatch.setenv(name, value)
    shown: list[bytes] = []
    reading = Thread(target=_read, args=(ours, shown))
    reading.start()
    with os.fdopen(theirs, "w") as stream:
        monkeypatch.setattr(sys, "stderr", stream)
        yield shown
        monkeypatch.undo()
    reading.join()
    os.close(ours)


def _read(ours: int, shown: list[bytes]) -> None:
    try:
        while part := os.read(ours, 4096):
            shown.append(part)
    except OSError:  # the other end is closed
        return


@pytest.mark.parametrize(("rows", "below"), [(40, ""), (5, f"and {len(NODES) - 2} more")], ids=["high", "low"])
def test_a_terminal_has_a_row_for_each_machine_from_the_start(
    rows: int, below: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the screen is too small, the count and the number of hidden machines are shown."""
    order = ApplyRequest(tuple(Target(node, NOBODY) for node in NODES), "ada", check=True)

    with _terminal(monkeypatch, rows) as shown:
        done = apply_order(OPERATOR, order, ())

    text = b"".join(shown).decode()
    first = text[: text.index("failed")]
    assert f"0 of {len(NODES)} done" in first
    assert first.count("logging in") >= min(len(NODES), rows - 3)
    assert below in first
    assert all(outcome.error for outcome in done.outcomes)


def test_what_is_being_done_gives_way_to_who_does_it() -> None:
    """Long rule names are cut, machine names and figures are not."""
    text = StringIO()
    screen = Console(width=60, file=text)

    screen.print(Board({"nas.cellar": Row("baseline " + "a-long-name-" * 9, "10 of 46, 9 failed")}))

    row = text.getvalue().splitlines()[1]
    assert row.startswith("nas.cellar   10 of 46, 9 failed   baseline a-long-")
    assert len(row) == 60


def test_a_wait_is_one_line_of_a_log(capsys: pytest.CaptureFixture[str]) -> None:
    """A repeated note is printed once; the next wait is printed again."""
    row, result = Row(""), NodeResult("n")
    waits, begins = Event("n", Step.NOTE, words=WAITS), Event("n", Step.BEGINS, name="Packages")

    for event in (begins, waits, waits, waits, begins, waits):
        take_event(row, event, result)

    assert capsys.readouterr().err.splitlines() == [f"n: {WAITS}"] * 2


def test_a_terminal_shows_how_far_an_audit_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each machine has a row from the start; the table disappears at the end."""
    with _terminal(monkeypatch, 40) as shown:
        (findings,) = audit_nodes(OPERATOR, MONITORING, ["nas.cellar"])

    text = b"".join(shown).decode()
    rules, failed = len(findings.verdicts), len(findings.of(RuleOutcome.FAILED))
    assert text.index("0 of 1 done") < text.index("1 of 1 done")
    assert re.search(rf"nas.cellar +{rules} of {rules}, {failed} failed +done", text)


def test_a_log_of_an_audit_has_a_line_for_each_machine_that_is_done(capsys: pytest.CaptureFixture[str]) -> None:
    """Rules have no lines, and stdout stays empty."""
    (findings,) = audit_nodes(OPERATOR, MONITORING, ["nas.cellar"])

    output = capsys.readouterr()
    failed = len(findings.of(RuleOutcome.FAILED))
    assert output.err == f"nas.cellar: {len(findings.verdicts)} rules, {failed} failed, {findings.seconds:.1f} s\n"
    assert output.out == ""


def test_each_rule_is_shown_while_it_is_asked() -> None:
    """The row has the role and name of the rule, and the number of checked rules."""
    operator = Recorder(CLI_NODE_PROGRESS_LAB)

    (findings,) = audit_nodes(operator, MONITORING, ["nas.cellar"])

    rules = len(findings.verdicts)
    begun = [event for event in operator.events if event.step is Step.BEGINS]
    assert [event.name for event in begun] == [f"{verdict.role} {verdict.rule}" for verdict in findings.verdicts]
    assert [event.changed + event.unchanged for event in begun] == list(range(rules))
    assert {event.changed + event.unchanged + event.ahead for event in begun} == {rules}


@pytest.mark.parametrize(
    ("script", "unreached"),
    [
        ("truncate -s 8T ${0#*=}", "unreadable findings"),
        ("yes '' | head -c 999999; echo $BYTES; exit 1", "the checks failed: x"),
    ],
)
def test_an_audit_reads_a_bounded_part_of_what_a_machine_causes(
    monkeypatch: pytest.MonkeyPatch, script: str, unreached: str
) -> None:
    """Findings of many terabytes are unreadable; of the output only the end is read."""
    monkeypatch.setenv("BYTES", "x")
    monkeypatch.setattr(audit, "_command", lambda *_: ("sh", "-c", script))

    (findings,) = run_audit(AuditRequest(), ["nas.cellar"], lambda _: None)

    assert findings.unreached == unreached
