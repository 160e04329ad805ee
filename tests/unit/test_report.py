"""Reports: tables, faults, errors, audits and hints."""

import json
from collections.abc import Sequence
from ipaddress import IPv4Network
from itertools import takewhile
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from bedplate.cli.output import show
from bedplate.errors import InputError, error_lines
from bedplate.nodes.apply import Event, NodeErrorKind, NodeResult, Step
from bedplate.nodes.audit import Findings, RuleOutcome, Verdict, parse_findings
from bedplate.plan.stacks import origin
from bedplate.report.columns import WIDTH, aligned, counted
from bedplate.report.compliance import compliance_document, compliance_lines, compliance_page, junit_report
from bedplate.report.diagnostics import defect_lines, fault_lines, tally, verdict_lines
from bedplate.report.graph import judgement_lines, stack_fault_lines, traced_fault_document
from bedplate.report.nodes import apply_lines
from bedplate.report.plan import named, roots
from bedplate.report.rules import ALL_RULES
from bedplate.rules import Fault, Level
from docs.generator.checks import checks_page
from tests.conftest import Expect
from tests.testlab.rehearsal.graphs import faults, resource
from tests.testlab.rehearsal.programs import EXAMPLES, plan_of


def _lost(node: str) -> NodeResult:
    return NodeResult(
        node, error=Event(node, Step.ERROR, kind=NodeErrorKind.UNREACHED, words="it does not answer", fix="wait")
    )


def test_many_that_are_not_done_fit_a_terminal() -> None:
    """All names are complete, and lines fit a terminal."""
    names = [f"workbench-gpu-{number}.us-west-2" for number in range(1, 13)]

    lines = tuple(apply_lines([_lost(name) for name in names], check=False))

    summary = lines[lines.index("") + 1 :]
    assert summary[0].startswith("0 of 12 nodes done; not done: workbench-gpu-1.us-west-2, ")
    assert " ".join(line.strip() for line in summary).endswith(", ".join(names))
    assert max(len(line) for line in lines) <= WIDTH


def test_how_long_it_took_until_it_failed_is_told() -> None:
    """A machine that was not reached has no time."""
    outcome = NodeResult("gate.cellar")
    outcome.take(Event("gate.cellar", Step.ERROR, kind=NodeErrorKind.FAILED, words="it broke", seconds=12.3))

    rows = [line.split() for line in apply_lines([outcome, _lost("nas.cellar")], check=False) if ".cellar  " in line]

    assert rows[0][:5] == ["gate.cellar", "0", "-", "12.3", "s"]
    assert rows[1][:4] == ["nas.cellar", "0", "-", "-"]


def test_a_long_reason_stays_in_its_column() -> None:
    """Wrapped text stays in its column, and no word is broken."""
    words = " ".join(["what it said"] * 12)
    error = Event("n", Step.ERROR, kind=NodeErrorKind.FAILED, words=words, fix=f"read {words}")
    lost = NodeResult("gate.cellar", changed=[f"File {words}"], error=error)

    lines = tuple(apply_lines([lost, NodeResult("nas.cellar", is_done=True)], check=True))

    leads = (lines[1][: lines[1].index("failed: ")], "  ~ ", "  fix  ")
    texts = (f"failed: {words}", f"File {words}", f"read {words}")
    assert max(len(line) for line in lines) <= WIDTH
    assert [_column(lines, lead) for lead in leads] == list(texts)


def _column(lines: Sequence[str], lead: str) -> str:
    """Return the text after a lead and the wrapped lines below it."""
    begin = next(place for place, line in enumerate(lines) if line.startswith(lead))
    below = takewhile(lambda line: line.startswith(" " * len(lead)), lines[begin + 1 :])
    return " ".join(line[len(lead) :] for line in (lines[begin], *below))


PLAN = plan_of(EXAMPLES / "lab.yaml")
FILES = resource("aws:efs/fileSystem:FileSystem", "lab-home", encrypted=False, tags={"owner": "lab"})
URN = "urn:pulumi:lab.us-west-2::bedplate::bedplate:stacks:Files$aws:efs/fileSystem:FileSystem::lab-home"
FAULTS = [fault for fault in faults([FILES | {"urn": URN}]) if fault.code == "S201"]


def _key(stack: str, name: str) -> str:
    return f"lab.yaml:70:3 {origin(PLAN, stack, name)}"


def test_a_fault_ends_with_its_place_in_the_fleet_file() -> None:
    """After the message and the fix."""
    head, *_, last = stack_fault_lines(FAULTS, _key)

    assert head.startswith("lab.us-west-2   aws:efs:FileSystem lab-home encrypted")
    assert last == "    from lab.yaml:70:3 storage.home"


def test_a_fault_of_what_no_file_asks_for_names_none() -> None:
    """A graph can come from a program without a fleet file."""
    assert not [line for line in judgement_lines(FAULTS) if line.startswith("    from ")]


def test_a_program_reads_the_place_too() -> None:
    """The key `from` is added to the document of `audit-graph --json`."""
    (document,) = traced_fault_document(FAULTS, _key)

    assert document["from"] == "lab.yaml:70:3 storage.home"
    assert {"code", "level", "urn", "key", "message", "fix"} <= document.keys()


def test_cells_begin_under_one_another() -> None:
    """A column is as wide as its widest cell."""
    assert aligned([("a", "b"), ("long", "c")]) == ("a      b", "long   c")


def test_figures_end_under_one_another() -> None:
    """Numbers of a column are right-aligned."""
    assert aligned([("a", "9"), ("b", "1,024")], right=(1,)) == ("a       9", "b   1,024")


def test_the_last_cell_of_a_row_widens_nothing() -> None:
    """A long remark does not move the cells of other rows."""
    assert aligned([("a", "a long remark"), ("b", "c", "d")]) == ("a   a long remark", "b   c   d")


def test_lines_have_no_blanks_at_their_end() -> None:
    """Lines have no trailing spaces."""
    assert aligned([("a", ""), ("b", "c", "")]) == ("a", "b   c")


@pytest.mark.parametrize(("count", "text"), [(0, "0 people"), (1, "1 person"), (2, "2 people"), (1024, "1,024 people")])
def test_a_count_has_its_noun(count: int, text: str) -> None:
    """In the singular or plural."""
    assert counted(count, "person", "people") == text


PASSED = Verdict(
    "baseline", "the-node-knows-its-name", "Logs name the machine as the plan does.", RuleOutcome.PASSED, "", 0.1
)
BROKEN = Verdict(
    "hardened",
    "nobody-logs-in-by-password",
    "Passwords are guessed from everywhere, keys are not.",
    RuleOutcome.FAILED,
    "PasswordAuthentication is <yes>\x1b[2J\nassert 'yes' == 'no'",
    0.2,
)
LONG = Verdict(
    "storage",
    "the-file-server-has-its-shares-where-everybody-has-them[/home]",
    "Whoever works on the machine that keeps the files finds them under the names that all others know.",
    RuleOutcome.FAILED,
    f"`systemctl show --property What --property Where -- home.automount` ended with 1: {'no such unit; ' * 9}\n"
    + "x" * 150,
    0.2,
)
UNKNOWN = Verdict("hardened", "audit-is-on", "What root does is written down.", RuleOutcome.SKIPPED, "a container", 0.0)
SILENT = Verdict(
    "people", "homes-are-theirs", "A home is its owner's.", RuleOutcome.UNKNOWN, "no answer within 60 s: stat", 60
)
FINDINGS = (
    Findings("titan-01.cellar", (PASSED, BROKEN, UNKNOWN), apart=7, seconds=3.2),
    Findings("workbench-cpu-1.us-west-2", (LONG,), apart=0, seconds=1.5),
    Findings("gate.cellar", (PASSED,), apart=9, seconds=1.0),
    Findings("titan-02.cellar", (PASSED, SILENT), apart=9, seconds=61.0),
    Findings("nas.cellar", unreached="ssh: connect to host 192.168.40.5 port 22: Connection timed out"),
)


@pytest.mark.parametrize(("name", "whole"), [("failures", False), ("whole", True)])
def test_findings_fit_a_terminal(
    name: str,
    whole: bool,  # noqa: FBT001  a case
    expect: Expect,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A table of machines, the failed rules or all rules, and the next command."""
    show(compliance_lines(FINDINGS, whole=whole))

    text = capsys.readouterr().out
    expect(f"compliance/{name}.txt", text)
    assert [line for line in text.splitlines() if len(line) > WIDTH] == []


def test_a_program_reads_the_findings_as_one_document() -> None:
    """Machines in their order with every verdict; an incomplete one is not ok."""
    document = json.loads(json.dumps(compliance_document(FINDINGS)))

    assert [node["node"] for node in document["nodes"]] == [findings.node for findings in FINDINGS]
    assert document["nodes"][0]["verdicts"][1]["outcome"] == "failed"
    assert document["ok"] is False
    assert [compliance_document((findings,))["ok"] for findings in FINDINGS] == [False, False, True, False, False]


def test_a_ci_reads_the_findings_as_junit_report() -> None:
    """A suite for each machine; an unreachable machine is an error, and invalid characters are replaced."""
    suites = ET.fromstring(junit_report(FINDINGS))  # noqa: S314  our own file

    last = [("titan-02.cellar", "2", "0", "1"), ("nas.cellar", "1", "0", "1")]
    counts = [(suite.get("name"), suite.get("tests"), suite.get("failures"), suite.get("errors")) for suite in suites]
    assert counts == [
        ("titan-01.cellar", "3", "1", "0"),
        ("workbench-cpu-1.us-west-2", "1", "1", "0"),
        ("gate.cellar", "1", "0", "0"),
        *last,
    ]
    assert "is <yes>\N{REPLACEMENT CHARACTER}" in (suites.findtext("testsuite/testcase/failure") or "")


def test_the_page_needs_nothing_beside_itself(expect: Expect) -> None:
    """No script and no external file; output of a machine is escaped."""
    page = compliance_page("lab", "2026-11-21", FINDINGS)

    expect("compliance/page.html", page)
    assert "<yes>" not in page
    assert not any(word in page for word in ("http", "src=", "<script", "@import"))


def test_findings_come_back_as_they_were_written() -> None:
    """Findings survive the way from the audit process."""
    text = f"[{', '.join(findings.text() for findings in FINDINGS)}]"

    assert parse_findings(text) == FINDINGS


def test_an_error_is_three_lines() -> None:
    """The lines have the message, the place and the fix."""
    error = InputError("10.0.0.0/16 overlaps", where="fleet.yaml", fix="choose another block")

    assert error_lines(error) == (
        "error: 10.0.0.0/16 overlaps",
        "  in   fleet.yaml",
        "  fix  choose another block",
    )


def test_what_an_error_does_not_know_is_left_out() -> None:
    """There are no empty lines."""
    assert error_lines(InputError("the disk is full")) == ("error: the disk is full",)


def test_a_defect_says_how_to_see_more() -> None:
    """The fix names the setting that prints the traceback."""
    what, fix = defect_lines(KeyError("zones"))

    assert what == "error: internal error: KeyError: 'zones'"
    assert "BEDPLATE_TRACEBACK=1" in fix


TYPE = Fault(
    code="E301",
    level=Level.ERROR,
    key="groups.train.types.0",
    message="p5.49xlarge is no EC2 instance type",
    fix="p5.48xlarge is the nearest",
    file="lab.yaml",
    line=44,
    column=15,
)
WHOLE = Fault("E008", Level.ERROR, "", "the file is empty", "", file="lab.yaml")
DOUBT = Fault("W512", Level.WARNING, "people", "nobody is an administrator", "", "lab.yaml", 9, 1)


def test_a_fault_leads_with_its_place() -> None:
    """Place, key and rule on one line in the form that editors recognize; message and fix below."""
    assert fault_lines([TYPE]) == (
        "lab.yaml:44:15   groups.train.types.0   E301 unknown-instance-type",
        "    p5.49xlarge is no EC2 instance type",
        "    fix: p5.48xlarge is the nearest",
    )


def test_a_fault_of_the_whole_file_has_no_line() -> None:
    """There is no line 0."""
    assert fault_lines([WHOLE])[0] == "lab.yaml   (the file)   E008 empty-file"


def test_faults_stand_under_one_another() -> None:
    """Keys and rules are aligned."""
    heads = [line for line in fault_lines([TYPE, DOUBT]) if not line.startswith(" ")]

    assert len({head.index(key) for head, key in zip(heads, ("groups", "people"), strict=True)}) == 1


def test_a_long_message_is_wrapped() -> None:
    """Lines have at most 100 columns."""
    long = Fault("E301", Level.ERROR, "a", "word " * 60, "")

    assert max(len(line) for line in fault_lines([long])) <= 100


def test_a_name_is_never_broken() -> None:
    """A command in a fix can be copied."""
    long = Fault("E231", Level.ERROR, "a", "", f"{'word ' * 16}`--release pool/us-west-2`")

    assert "    pool/us-west-2`" in fault_lines([long])


def test_faults_are_counted_by_level() -> None:
    """The count of errors comes first."""
    assert tally(fault.level for fault in (DOUBT, TYPE, WHOLE)) == "2 errors, 1 warning"


def test_the_verdict_comes_last() -> None:
    """The number of faults, and the command that explains them."""
    *_, last = verdict_lines("lab.yaml", [TYPE, DOUBT])

    assert last.startswith("1 error, 1 warning in lab.yaml")
    assert last.endswith("details: `bedplate check --explain E301`")


BLOCK = IPv4Network("10.64.0.0/16")


@pytest.mark.parametrize(
    ("paths", "expected"),
    [
        (("region/a", "region/a/zone/a1/edge", "pods"), ("region/a", "pods")),
        (("region/a/zone/a1/edge", "region/a/zone/a1/nodes"), ("region/a/zone/a1/edge", "region/a/zone/a1/nodes")),
        ((), ()),
    ],
)
def test_a_subnet_is_told_only_without_its_region(paths: tuple[str, ...], expected: tuple[str, ...]) -> None:
    """A new region is one block; a new zone of an old region is one, too."""
    assert roots(dict.fromkeys(paths, BLOCK)) == expected


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (("a",), "1 block (a)"),
        (("a", "b"), "2 blocks (a, 1 more)"),
        (("a", "b", "c", "d"), "4 blocks (a, 3 more)"),
    ],
)
def test_the_first_is_named(names: tuple[str, ...], text: str) -> None:
    """The first name and the number of the others."""
    assert named(names, "block") == text


PAGE = Path(__file__).parents[2] / "docs" / "checks.md"


def test_the_page_is_current() -> None:
    """`make docs` generates it."""
    assert PAGE.read_text(encoding="utf-8") == checks_page()


def test_every_rule_has_its_row() -> None:
    """The row has the name, reason and level of the rule."""
    page = checks_page()

    assert "| example-value | error in `up` only |" in page
    levels = {Level.DEPLOYMENT: "error in `up` only"}
    assert all(
        f"| {code} | {rule.name} | {levels.get(rule.level, rule.level)}" in page for code, rule in ALL_RULES.items()
    )
