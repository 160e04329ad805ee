"""Pytest plugins of the audit: collect the verdict of each rule on each node, and report progress.

The name of a rule is the name of its test function; its description is the docstring. Failures are shortened to what
describes the node, without pytest's introspection.
"""

import re
from collections import Counter
from collections.abc import Collection, Generator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import pytest
from testinfra.backend.base import CommandResult
from testinfra.host import Host

from bedplate.compliance.settings import MARKER
from bedplate.compliance.shell import NoAnswerError
from bedplate.errors import PartialError
from bedplate.files import write_whole
from bedplate.nodes.apply import Event, NodeError, Step
from bedplate.nodes.audit import Findings, RuleOutcome, Verdict, role_of
from bedplate.nodes.remote import login_error
from bedplate.plan.nodes import NodePlan

# Lines of pytest's introspection that describe Python objects, not the node.
_INTROSPECTION = re.compile(
    r" at 0x|<built-in |<class |<generator |^Use -v to get|Full output truncated|^assert (not )?(True|False|None)$"
    r"|where \w+ = \.\w+$|re\.MULTILINE = "
)
_HOST = re.compile(r"<testinfra\.host\.Host [^>]*>(, )?")
# A property of a testinfra object: `where False = <service chrony>.is_running`.
_PROPERTY = re.compile(
    r"where (?P<value>True|False) = <(?:service|file|package|socket|user|group) (?P<subject>.+)>\.(?P<property>\w+)"
)
# The start of a line of `comparison_lines`: pytest puts `assert` before the first, and spaces before the others.
_COMPARISON = re.compile(r"^(assert |\s+)(?=(found|expected|not found|not expected):)")
# A program: `where False = exists('nvtop')`.
_PROGRAM = re.compile(r"where (?P<value>True|False) = exists\('(?P<program>.+)'\)")


def _failure_text(report: pytest.TestReport) -> str:
    """Return what differs from the rule, or why it was skipped; an empty text if the rule passes."""
    if report.passed:
        return ""
    if isinstance(report.longrepr, tuple):
        return report.longrepr[2].removeprefix("Skipped: ")
    crash = getattr(report.longrepr, "reprcrash", None)
    message = crash.message if crash else str(report.longrepr)
    return simplify_failure(message.removeprefix("AssertionError: "))


def simplify_failure(message: str) -> str:
    """Return pytest's failure message with sentences instead of introspection, such as `chrony is not running`."""
    lines = (_HOST.sub("", line.rstrip()) for line in message.splitlines())
    lines = (_COMPARISON.sub("", line) for line in lines)
    return "\n".join(_sentence(line) for line in lines if line.strip() and not _INTROSPECTION.search(line.strip(" +")))


def comparison_lines(op: str, left: object, right: object) -> list[str]:
    """Return the lines for a comparison that fails: what a node has, and what the rule expects."""
    if op in {"in", "not in"} and isinstance(right, str | list | dict):
        return [f"{'not found' if op == 'in' else 'not expected'}: {_text(left)}"]
    if op in {"==", "<="} and isinstance(left, Collection) and isinstance(right, Collection) and not _is_line(left):
        actual, expected = _rows(left), _rows(right)
        differences = {
            "not expected": [row for row in actual if row not in expected],
            "not found": [row for row in expected if row not in actual and op == "=="],
        }
        lines = [f"{label}: {', '.join(rows)}" for label, rows in differences.items() if rows]
        if lines:
            return lines
    relation = {"==": "", "in": "one of "}.get(op, f"{op} ")
    return [f"found: {_text(left)}", f"expected: {relation}{_text(right)}"]


def _is_line(value: object) -> bool:
    return isinstance(value, str | bytes) and len(value.splitlines()) < 2


def _rows(values: Collection[object]) -> list[str]:
    """Return the lines of a text, the items of a table, or the elements of a list or set."""
    if isinstance(values, str):
        return values.splitlines()
    if isinstance(values, Mapping):
        return [f"{key}: {_text(value)}" for key, value in values.items()]
    return [_text(value) for value in values]


def _text(value: object) -> str:
    if isinstance(value, Collection) and not isinstance(value, str | bytes):
        return ", ".join(_rows(value)) or "nothing"
    return str(value).strip() or "nothing"


def _sentence(line: str) -> str:
    if match := _PROGRAM.fullmatch(line.strip(" +")):
        return f"{match['program']} is {'' if match['value'] == 'True' else 'not '}installed"
    if not (match := _PROPERTY.fullmatch(line.strip(" +"))):
        return line
    is_true, name = match["value"] == "True", match["property"].removeprefix("is_")
    if name == "exists":
        return f"{match['subject']} {'exists' if is_true else 'does not exist'}"
    return f"{match['subject']} is {'' if is_true else 'not '}{name}"


_OUTCOMES = {"passed": RuleOutcome.PASSED, "failed": RuleOutcome.FAILED, "skipped": RuleOutcome.SKIPPED}
_NO_ANSWER = ("no answer", "yes")


@dataclass
class _NodeResult:
    """The verdicts on one node so far; `apart` counts the rules that do not apply to it."""

    node: str
    unreached: str
    verdicts: list[Verdict] = field(default_factory=list)
    apart: int = 0

    def findings(self) -> Findings:
        """Return the findings so far."""
        return Findings(self.node, tuple(self.verdicts), self.apart, self.unreached)


class ResultCollector:
    """Pytest plugin that selects the rules of each node, collects their verdicts and writes them to a file."""

    def __init__(self, target: str | None) -> None:
        self._target = target
        self._results: dict[str, _NodeResult] = {}

    def selects(self, item: pytest.Function, host: Host, node: NodePlan) -> bool:
        """Return whether to run a rule on a node: the node is reachable, and the rule applies to it."""
        if node.name not in self._results:
            self._results[node.name] = _NodeResult(node.name, unreached_reason(node.name, host))
        result = self._results[node.name]
        if result.unreached:
            return False
        if not all(mark.args[0](node) for mark in item.iter_markers(MARKER)):
            result.apart += 1
            return False
        item.user_properties.extend(_rule_properties(item, node))
        return True

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Mark a rule as skipped if its command timed out, or if the connection to the node was lost."""
        report = yield
        if call.excinfo and isinstance(call.excinfo.value, NoAnswerError):
            report.user_properties.append(_NO_ANSWER)
            report.outcome, report.longrepr = "skipped", ("", 0, f"Skipped: {call.excinfo.value}")
            return report
        name = rule_properties(report)["node"]
        lost = _connection_error(name, call.excinfo.value) if call.excinfo else ""
        if call.excinfo and report.failed:
            _show_command(call.excinfo, report)
        if lost:
            self._results[name].unreached = lost
            # Nobody knows whether the rule passes.
            report.outcome, report.longrepr = "skipped", ("", 0, f"Skipped: {lost}")
        return report

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Skip all rules of a node after its connection was lost."""
        result = self._results[rule_properties(item)["node"]]
        if result.unreached:
            pytest.skip(f"connection lost: {result.unreached}")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Store the verdict of a rule."""
        if report.when == "call" or (report.when == "setup" and not report.passed):
            rule = rule_properties(report)
            outcome = RuleOutcome.UNKNOWN if _NO_ANSWER in report.user_properties else _OUTCOMES[report.outcome]
            text, seconds = _failure_text(report), round(report.duration, 3)
            verdict = Verdict(rule["role"], rule["rule"], rule["description"], outcome, text, seconds)
            self._results[rule["node"]].verdicts.append(verdict)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print which nodes were not reached, and how many rules do not apply to each of the others."""
        for result in self._results.values():
            text = f"not reached: {result.unreached}" if result.unreached else f"{result.apart} rules do not apply"
            terminalreporter.write_line(f"{result.node}: {text}")

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write the findings; exit with 6 if a node was not reached or a command timed out."""
        findings = [result.findings() for result in self._results.values()]
        if self._target:
            write_whole(
                Path(self._target), f"[{', '.join(node_findings.text() for node_findings in findings)}]".encode()
            )
        if session.exitstatus in {pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED} and self._is_partial():
            session.exitstatus = PartialError.exit_code

    def _is_partial(self) -> bool:
        return any(result.unreached or result.findings().of(RuleOutcome.UNKNOWN) for result in self._results.values())


def unreached_reason(name: str, host: Host) -> str:
    """Return why no command can run on a node, with a fix; an empty text if commands run."""
    try:
        result = host.run("true")
    except (RuntimeError, NodeError) as error:
        return _connection_error(name, error) or str(error)
    except NoAnswerError as error:
        return str(error)
    return "" if result.succeeded else _login_error(name, result.stderr)


def _connection_error(name: str, error: BaseException) -> str:
    """Return why a node is not reached, with a fix; "" for another error. That of `ssh://` holds OpenSSH's result."""
    if isinstance(error, NodeError):
        return f"{error.words}; {error.fix}"
    result = error.args[0] if isinstance(error, RuntimeError) and error.args else None
    return _login_error(name, result.stderr) if isinstance(result, CommandResult) else ""


def _login_error(name: str, stderr: str) -> str:
    """Return the same message as an apply, with the last line of OpenSSH or sudo."""
    error = login_error(name, stderr)
    return f"{error.words}; {error.fix}"


def _show_command(error: pytest.ExceptionInfo[BaseException], report: pytest.TestReport) -> None:
    """Replace testinfra's result object in a failure by the command, its exit code and its last line."""
    result = error.traceback[-1].frame.f_locals.get("out")
    crash = getattr(report.longrepr, "reprcrash", None)
    if crash and isinstance(result, CommandResult):
        line = result.command.decode(errors="replace").splitlines()[0]
        crash.message = f"`{line}` ended with {result.rc}: {_last_line(result.stderr)}"


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1].strip() if lines else "no error output"


def _rule_properties(item: pytest.Function, node: NodePlan) -> tuple[tuple[str, str], ...]:
    """Return node, role, name and description of a rule; JUnit files contain them too."""
    description = " ".join((item.function.__doc__ or "").split())
    cases = [str(value) for name, value in item.callspec.params.items() if not name.startswith("_")]
    case = f"[{', '.join(cases)}]" if cases else ""
    rule = f"{item.originalname.removeprefix('test_').replace('_', '-')}{case}"
    return ("node", node.name), ("role", role_of(item.path.stem)), ("rule", rule), ("description", description)


def rule_properties(test: pytest.Item | pytest.TestReport) -> dict[str, str]:
    """Return node, role, rule and description of a test."""
    return {key: str(value) for key, value in test.user_properties}


class ProgressReporter:
    """Pytest plugin that writes an event when a rule starts; a closed reader ends the audit."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self._total: Counter[str] = Counter()
        self._started: Counter[str] = Counter()
        self._failed: Counter[str] = Counter()

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Count the rules of each node."""
        self._total.update(rule_properties(item)["node"] for item in session.items)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Write an event for the rule that starts."""
        rule = rule_properties(item)
        node, name = rule["node"], f"{rule['role']} {rule['rule']}"
        failed, started = self._failed[node], self._started[node]
        ahead = self._total[node] - started
        event = Event(node, Step.BEGINS, name=name, changed=failed, unchanged=started - failed, ahead=ahead)
        self._stream.write(f"{event.line()}\n")
        self._started[node] += 1

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count failed rules."""
        self._failed[rule_properties(report)["node"]] += report.failed and report.when != "teardown"

    def pytest_unconfigure(self) -> None:
        """Close the stream, so that its reader stops."""
        self._stream.close()
