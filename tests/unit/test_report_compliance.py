"""What `bedplate node audit` prints and writes, from findings of every kind."""

import json
from xml.etree import ElementTree as ET

import pytest

from bedplate.nodes.verdict import Findings, Outcome, Verdict, findings_of
from bedplate.report.columns import WIDTH
from bedplate.report.compliance import compliance_document, compliance_lines
from bedplate.report.compliance_page import compliance_page
from bedplate.report.junit import junit
from tests.conftest import Expect

KEPT = Verdict("baseline", "the-node-knows-its-name", "Logs name the machine as the plan does.", Outcome.KEPT, "", 0.1)
BROKEN = Verdict(
    "hardened",
    "nobody-logs-in-by-password",
    "Passwords are guessed from everywhere, keys are not.",
    Outcome.VIOLATED,
    "PasswordAuthentication is <yes>\x1b[2J\nassert 'yes' == 'no'",
    0.2,
)
LONG = Verdict(
    "storage",
    "the-file-server-has-its-shares-where-everybody-has-them[/home]",
    "Whoever works on the machine that keeps the files finds them under the names that all others know.",
    Outcome.VIOLATED,
    f"`systemctl show --property What --property Where -- home.automount` ended with 1: {'no such unit; ' * 9}\n"
    + "x" * 150,
    0.2,
)
UNSEEN = Verdict("hardened", "audit-is-on", "What root does is written down.", Outcome.UNJUDGED, "a container", 0.0)
SILENT = Verdict(
    "people", "homes-are-theirs", "A home is its owner's.", Outcome.UNSEEN, "no answer within 60 s: stat", 60
)
FINDINGS = (
    Findings("titan-01.cellar", (KEPT, BROKEN, UNSEEN), apart=7, seconds=3.2),
    Findings("workbench-cpu-1.us-west-2", (LONG,), apart=0, seconds=1.5),
    Findings("gate.cellar", (KEPT,), apart=9, seconds=1.0),
    Findings("titan-02.cellar", (KEPT, SILENT), apart=9, seconds=61.0),
    Findings("nas.cellar", unreached="ssh: connect to host 192.168.40.5 port 22: Connection timed out"),
)


@pytest.mark.parametrize(("name", "whole"), [("violations", False), ("whole", True)])
def test_findings_fit_a_terminal(name: str, whole: bool, expect: Expect) -> None:  # noqa: FBT001  a case
    """A table by machine, then what is violated with its promise, or every rule; last what to do."""
    lines = tuple(compliance_lines(FINDINGS, whole=whole))

    expect(f"compliance/{name}.txt", "\n".join(lines) + "\n")
    assert [line for line in lines if len(line) > WIDTH] == []


def test_a_program_reads_the_findings_as_one_document() -> None:
    """Machines in their order, each with every verdict; one not reached, or not whole, is not fine."""
    document = json.loads(json.dumps(compliance_document(FINDINGS)))

    assert [node["node"] for node in document["nodes"]] == [each.node for each in FINDINGS]
    assert document["nodes"][0]["verdicts"][1]["outcome"] == "violated"
    assert document["ok"] is False
    assert [compliance_document((each,))["ok"] for each in FINDINGS] == [False, False, True, False, False]


def test_a_ci_reads_the_findings_as_junit() -> None:
    """A suite a machine, a case a rule; a machine that was not reached is an error, and no byte breaks the file."""
    suites = ET.fromstring(junit(FINDINGS))  # noqa: S314  our own file

    last = [("titan-02.cellar", "2", "0", "1"), ("nas.cellar", "1", "0", "1")]
    counts = [(each.get("name"), each.get("tests"), each.get("failures"), each.get("errors")) for each in suites]
    assert counts == [
        ("titan-01.cellar", "3", "1", "0"),
        ("workbench-cpu-1.us-west-2", "1", "1", "0"),
        ("gate.cellar", "1", "0", "0"),
        *last,
    ]
    assert "is <yes>\N{REPLACEMENT CHARACTER}" in (suites.findtext("testsuite/testcase/failure") or "")


def test_the_page_needs_nothing_beside_itself(expect: Expect) -> None:
    """No script, no file of elsewhere; what a machine answered is text, never markup."""
    page = compliance_page("lab", "2026-11-21", FINDINGS)

    expect("compliance/page.html", page)
    assert "<yes>" not in page
    assert not any(word in page for word in ("http", "src=", "<script", "@import"))


def test_findings_come_back_as_they_were_written() -> None:
    """The process that looks hands over what it found, and nothing else."""
    text = f"[{', '.join(each.text() for each in FINDINGS)}]"

    assert findings_of(text) == FINDINGS
