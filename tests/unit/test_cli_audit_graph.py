"""`bedplate audit-graph`, driven as an operator drives it."""

import io
import json
import sys
from pathlib import Path

import pytest

from bedplate.cli import run
from tests.support.audited import group, rule

OPEN = [group(), rule("0.0.0.0/1"), rule("128.0.0.0/1")]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Give the file of a graph that lets the internet at SSH."""
    file = tmp_path / "graph.json"
    file.write_text(json.dumps(OPEN), encoding="utf-8")
    return file


def test_a_violation_is_told_and_is_the_exit_status(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Stack, resource, property, rule; what is wrong; what to do."""
    assert run(["audit-graph", str(path)]) == 3

    head, message, *_, last = capsys.readouterr().out.splitlines()
    assert head.startswith("lab   aws:vpc:SecurityGroupIngressRule 0.0.0.0/1")
    assert head.endswith("cidrIpv4   S101 open-to-the-internet")
    assert "SSH (22) is open to " in message
    assert last.startswith("1 error in ")


def test_a_program_reads_the_faults(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In the promised form."""
    assert run(["audit-graph", str(path), "--json"]) == 3

    told = json.loads(capsys.readouterr().out)["faults"]
    assert [one["code"] for one in told] == ["S101"]
    assert told[0].keys() == {"code", "level", "urn", "key", "message", "fix"}


def test_a_graph_may_come_through_a_pipe(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """From `bedplate graph`, or from whoever prints the same form; a graph without faults is fine."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(json.dumps([group()]).encode())))

    assert run(["audit-graph", "-"]) == 0

    assert capsys.readouterr().out.startswith("stdin is fine (1 resource, ")


@pytest.mark.parametrize("data", [None, b"\xff\xfe", b"{", b'{"resources": []}'])
def test_what_is_no_graph_is_refused(data: bytes | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Status 2, with where and what; a missing file too."""
    file = tmp_path / "graph.json"
    if data is not None:
        file.write_bytes(data)

    assert run(["audit-graph", str(file)]) == 2

    assert str(file) in capsys.readouterr().err
