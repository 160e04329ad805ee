"""`bedplate status`: its parts, what is wrong, and what does not answer."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from socket import create_server, socket
from typing import Any

import pytest
from typer.core import TyperGroup

from bedplate import cli
from bedplate.cli import run
from bedplate.cli.app import make_app
from bedplate.cli.options import Terminal
from bedplate.operate import Operator, Result, doctor, plan_of
from bedplate.operate import status as page
from tests.conftest import DATA
from tests.testlab.engine.command import simulated_account
from tests.testlab.engine.folder import HISTORY, REPLAY, make_folder, resources
from tests.testlab.rehearsal.programs import EXAMPLES

PARTS = ["stacks", "machines", "dates", "cost"]


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the fleet file of a folder with the deployed stack trio.shared, its state in the folder."""
    stack = {"version": 3, "deployment": {"resources": resources("trio.shared", "aws:iam/role:Role")}}
    files = {
        "trio.shared.json": stack,
        "stacks.json": [{"name": "trio.shared", "current": False, "resourceCount": 2}],
        "history.json": [{**HISTORY[0], "message": "by ada"}],
    }
    texts = {name: json.dumps(document) for name, document in files.items()}
    texts |= {"Pulumi.trio.shared.yaml": "encryptionsalt: v1\n", "fleet.yaml": (DATA / "engine/trio.yaml").read_text()}
    texts["Pulumi.yaml"] = "name: bedplate\nruntime: python\nbackend:\n  url: file://./state\n"
    monkeypatch.delenv("PULUMI_BACKEND_URL", raising=False)
    # `pulumi` answers by the last argument; those of the history follow the stack.
    answers = REPLAY.replace("for stack; do :; done", "for stack; do case $stack in trio.*) break ;; esac; done")
    return make_folder(tmp_path, monkeypatch, answers, texts) / "fleet.yaml"


def status(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, Any]:
    """Return the exit status and the JSON document of `bedplate status`."""
    code = run(["status", "--json", *arguments])
    return code, json.loads(capsys.readouterr().out)


@pytest.mark.usefixtures("fleet")
def test_a_stack_has_its_last_change_and_its_operator(capsys: pytest.CaptureFixture[str]) -> None:
    """The operator is the one that `up` wrote into Pulumi's history."""
    _, document = status(capsys)

    assert document["stacks"]["trio.shared"] == {
        "last change": "2026-11-22T12:00:00.000Z",
        "by": "ada",
        "unfinished": "0",
    }
    assert document["stacks"]["trio.links"]["last change"] == "not deployed"


def test_what_does_not_answer_is_unknown(fleet: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Status 6: the other parts are shown."""
    code, document = status(capsys, str(fleet))

    assert code == 6
    assert document["machines"] == {"unknown": "no AWS credentials found"}
    assert document["cost"] == {"unknown": "the machines or the stacks are unknown"}
    assert "trio.shared" in document["stacks"]


@pytest.fixture
def account(fleet: Path) -> Iterator[Path]:
    """Yield the fleet file, with an account in which nothing runs."""
    with simulated_account():
        yield fleet


@pytest.mark.usefixtures("account")
def test_what_answers_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    """The machines of each rung, and the cost of what runs: each by its own reader."""
    assert run(["status"]) == 0

    output = capsys.readouterr().out
    assert [line for line in output.splitlines() if line[0] != " "] == PARTS
    assert "  trio.shared       2026-11-22T12:00:00.000Z   ada   0" in output
    assert "  0.00 USD/month at list price for machines of groups, 0.00 for all else" in output


def test_operations_of_a_killed_run_are_a_fault(fleet: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Status 3, also while other parts are unknown, and the command that repairs it."""
    state = resources("trio.shared", "aws:iam/role:Role")
    pending = [{"type": "creating", "resource": state[1]}]
    (fleet.parent / "trio.shared.json").write_text(
        json.dumps({"version": 3, "deployment": {"resources": state, "pending_operations": pending}})
    )

    assert run(["status"]) == 3

    fault = "fault: trio.shared: a killed run left 1 operation: run `bedplate recover`"
    assert fault in capsys.readouterr().out


def test_a_certificate_that_has_ended_is_a_fault(begun: Path) -> None:
    """Dates within two months are listed, the soonest first, and the next one."""
    operator = Terminal(begun)
    plan, now = plan_of(operator), datetime.now(UTC)

    soon: Any = page.dates_due(operator, plan, now)
    late: Any = page.dates_due(operator, plan, now + timedelta(days=20 * 365))

    assert (soon.status, late.status) == (0, 3)
    assert {"authority of the VPN", "revocation list of the VPN"} <= {entry["of"] for entry in soon.document}
    assert any(line.endswith("over") for line in late.lines)


def test_a_late_part_ends_nothing_but_itself(fleet: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The time begins with the command: one that has passed before the parts are asked is not given again."""
    result = page.status(Terminal(fleet), 60, time.monotonic() - 60)

    document: Any = result.document
    assert document["machines"] == {"unknown": "no answer within 60 s"}
    assert result.status == 6


def test_the_time_of_a_command_includes_its_imports(monkeypatch: pytest.MonkeyPatch) -> None:
    """They take seconds on a busy machine."""
    times: list[float] = []

    def load(words: Sequence[str]) -> TyperGroup:
        times.append(time.monotonic())
        return make_app(words)

    def examine(_operator: Operator, _seconds: float, began: float) -> Result:
        times.append(began)
        return Result(())

    monkeypatch.setattr(cli, "make_app", load)
    monkeypatch.setattr(doctor, "examine", examine)

    assert cli.run(["doctor", str(EXAMPLES / "minimal.yaml")]) == 0

    loaded, began = times
    assert began <= loaded


@pytest.mark.nightly
def test_the_page_waits_for_nobody(fleet: Path) -> None:
    """AWS and the backend answer nothing: the process ends before it asks again, and so does its `pulumi`."""
    script = fleet.parent / "pulumi"
    script.write_text(
        f"#!/bin/sh\n[ $1 = version ] && echo v3.272.0 && exit\necho $$ > {fleet.parent}/pid\nexec sleep 600\n"
    )
    with create_server(("127.0.0.1", 0)) as server:
        environment = {
            **os.environ,
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.getsockname()[1]}",
            "AWS_ACCESS_KEY_ID": "x",
            "AWS_SECRET_ACCESS_KEY": "x",
        }
        command = [sys.executable, "-m", "bedplate", "status", str(fleet), "--json", "--timeout", "8"]
        ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=600)
        connections = count_connections(server)

    document = json.loads(ended.stdout)
    assert ended.returncode == 6
    assert [document[part] for part in ("stacks", "machines")] == [{"unknown": "no answer within 8 s"}] * 2
    # One part asks STS, whose client asks a second time after ten seconds.
    assert connections <= 1
    pid = fleet.parent / "pid"
    if pid.exists():  # on a busy machine the time may be over before it is asked
        assert not is_alive(int(pid.read_text()))


def count_connections(server: socket) -> int:
    """Return the number of connections that wait at a server."""
    server.settimeout(0)
    for number in count():
        try:
            server.accept()[0].close()
        except BlockingIOError:
            return number
    raise AssertionError


def is_alive(process: int) -> bool:
    """Return whether a process runs, after a minute in which it may end."""
    for _ in range(600):
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            return False
        time.sleep(0.1)
    return True
