"""What a rule that is violated says, in an operator's words: without pytest's way there, and Python's own objects."""

import re
from collections import Counter
from collections.abc import Generator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import pytest
from testinfra.backend.base import CommandResult
from testinfra.host import Host

from bedplate.compliance.shell import SilenceError
from bedplate.compliance.subject import MARK
from bedplate.errors import PartError
from bedplate.nodes.apply import Event, Step
from bedplate.nodes.audit import Findings, Outcome, Verdict, role_of
from bedplate.plan.nodes import NodePlan
from bedplate.writer import write_whole
from roles.engine.connection import login_trouble

# What pytest knows of Python's own objects on the way to a comparison, and testinfra of its host.
_WAYS = re.compile(
    r" at 0x|<built-in |<class |<generator |^Use -v to get|^assert (not )?(True|False|None)$"
    r"|where \w+ = \.\w+$|re\.MULTILINE = "
)
_HOST = re.compile(r"<testinfra\.host\.Host [^>]*>(, )?")
# What testinfra was asked of a service, a file, a package: `where False = <service chrony>.is_running`.
_ASKED = re.compile(
    r"where (?P<so>True|False) = <(?:service|file|package|socket|user|group) (?P<of>.+)>\.(?P<what>\w+)"
)
# Of a program, whether there is one: `where False = exists('nvtop')`.
_PROGRAM = re.compile(r"where (?P<so>True|False) = (?P<what>exists)\('(?P<of>.+)'\)")


def words_of(report: pytest.TestReport) -> str:
    """Return what is otherwise than promised, or why nobody looked; nothing of a rule that is kept."""
    if report.passed:
        return ""
    if isinstance(report.longrepr, tuple):
        return report.longrepr[2].removeprefix("Skipped: ")
    crash = getattr(report.longrepr, "reprcrash", None)
    return plain((crash.message if crash else str(report.longrepr)).removeprefix("AssertionError: "))


def plain(message: str) -> str:
    """Return a message of pytest's without what says nothing of the machine."""
    lines = (_HOST.sub("", line.rstrip()) for line in message.splitlines())
    told = (_told(line) for line in lines if line.strip() and not _WAYS.search(line.strip(" +")))
    return "\n".join(told)


def _told(line: str) -> str:
    asked = _ASKED.fullmatch(line.strip(" +")) or _PROGRAM.fullmatch(line.strip(" +"))
    if not asked:
        return line
    is_so, what = asked["so"] == "True", asked["what"]
    if what == "exists":
        return f"{asked['of']} is there" if is_so else f"{asked['of']} is not there"
    return f"{asked['of']} is {'' if is_so else 'not '}{what.removeprefix('is_')}"


_OUTCOMES = {"passed": Outcome.KEPT, "failed": Outcome.VIOLATED, "skipped": Outcome.UNJUDGED}
_SILENT = ("silent", "yes")


@dataclass
class Page:
    """One machine's page: what was found so far."""

    node: str
    unreached: str
    verdicts: list[Verdict] = field(default_factory=list)
    apart: int = 0

    def findings(self) -> Findings:
        """Return the page as it is now."""
        return Findings(self.node, tuple(self.verdicts), self.apart, self.unreached)


class Ledger:
    """The pages of all machines under test, kept by the hooks of pytest."""

    def __init__(self, target: str | None) -> None:
        self._target = target
        self._pages: dict[str, Page] = {}

    def admits(self, item: pytest.Function, host: Host, node: NodePlan) -> bool:
        """Tell whether a rule is to be run on a machine: it is reached, and the rule concerns it."""
        if node.name not in self._pages:
            self._pages[node.name] = Page(node.name, silence(node.name, host))
        page = self._pages[node.name]
        if page.unreached:
            return False
        if not all(mark.args[0](node) for mark in item.iter_markers(MARK)):
            page.apart += 1
            return False
        item.user_properties.extend(_called(item, node))
        return True

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Note a machine that is lost on the way, and a rule that it did not answer."""
        report = yield
        if call.excinfo and isinstance(call.excinfo.value, SilenceError):
            report.user_properties.append(_SILENT)
            report.outcome, report.longrepr = "skipped", ("", 0, f"Skipped: {call.excinfo.value}")
            return report
        name = about(report)["node"]
        lost = _lost(name, call.excinfo.value) if call.excinfo else ""
        if call.excinfo and report.failed:
            _tell_command(call.excinfo, report)
        if lost:
            self._pages[name].unreached = lost
            # Whether the rule is kept, nobody has seen.
            report.outcome, report.longrepr = "skipped", ("", 0, f"Skipped: {lost}")
        return report

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Ask no more of a machine that was lost."""
        page = self._pages[about(item)["node"]]
        if page.unreached:
            pytest.skip(f"not reached any more: {page.unreached}")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Write down what became of a rule."""
        if report.when == "call" or (report.when == "setup" and not report.passed):
            told = about(report)
            words = words_of(report)
            outcome = Outcome.UNSEEN if _SILENT in report.user_properties else _OUTCOMES[report.outcome]
            page = self._pages[told["node"]]
            seconds = round(report.duration, 3)
            page.verdicts.append(Verdict(told["role"], told["rule"], told["promise"], outcome, words, seconds))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Tell which machines were not reached, and how many rules do not concern each of the others."""
        for page in self._pages.values():
            text = f"not reached: {page.unreached}" if page.unreached else f"{page.apart} rules do not concern it"
            terminalreporter.write_line(f"{page.node}: {text}")

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Hand over what was found; a machine that was not reached, or only in part, is no success."""
        findings = [page.findings() for page in self._pages.values()]
        if self._target:
            write_whole(Path(self._target), f"[{', '.join(each.text() for each in findings)}]".encode())
        if session.exitstatus in {pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED} and self._is_partial():
            session.exitstatus = PartError.exit_code

    def _is_partial(self) -> bool:
        return any(page.unreached or page.findings().of(Outcome.UNSEEN) for page in self._pages.values())


def silence(name: str, host: Host) -> str:
    """Say why a machine runs nothing for us, and what to do about it; empty where it does."""
    try:
        answer = host.run("true")
    except RuntimeError as error:
        return _lost(name, error) or str(error)
    except SilenceError as error:
        return str(error)
    return "" if answer.succeeded else _kept_out(name, answer.stderr)


def _lost(name: str, error: BaseException) -> str:
    """Say what OpenSSH told of a machine that it did not reach; testinfra hands its answer over in the error."""
    answer = error.args[0] if isinstance(error, RuntimeError) and error.args else None
    return _kept_out(name, answer.stderr) if isinstance(answer, CommandResult) else ""


def _kept_out(name: str, said: str) -> str:
    """Say it as an apply does, with OpenSSH's or sudo's last words."""
    trouble, last = login_trouble(name, said), _last(said)
    seen = "" if last in trouble.what else f" ({last})"
    return f"{trouble.what}{seen}; {trouble.fix}"


def _tell_command(error: pytest.ExceptionInfo[BaseException], report: pytest.TestReport) -> None:
    """Put a command that failed into an operator's words; testinfra shows the object that holds its answer."""
    answer = error.traceback[-1].frame.f_locals.get("out")
    crash = getattr(report.longrepr, "reprcrash", None)
    if crash and isinstance(answer, CommandResult):
        line = answer.command.decode(errors="replace").splitlines()[0]
        crash.message = f"`{line}` ended with {answer.rc}: {_last(answer.stderr)}"


def _last(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1].strip() if lines else "it does not say why"


def _called(item: pytest.Function, node: NodePlan) -> tuple[tuple[str, str], ...]:
    """Return what a rule is called; junit's files hold it as well."""
    promise = " ".join((item.function.__doc__ or "").split())
    cases = [str(value) for name, value in item.callspec.params.items() if not name.startswith("_")]
    case = f"[{', '.join(cases)}]" if cases else ""
    rule = f"{item.originalname.removeprefix('test_').replace('_', '-')}{case}"
    return ("node", node.name), ("role", role_of(item.path.stem)), ("rule", rule), ("promise", promise)


def about(of: pytest.Item | pytest.TestReport) -> dict[str, str]:
    """Return which rule it is: node, role, rule and promise."""
    return {key: str(value) for key, value in of.user_properties}


class Teller:
    """What is told of each machine, kept by the hooks of pytest; a reader who has left ends the checks."""

    def __init__(self, out: IO[str]) -> None:
        self._out = out
        self._ahead: Counter[str] = Counter()
        self._done: Counter[str] = Counter()
        self._violated: Counter[str] = Counter()

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Count the rules of each machine."""
        self._ahead.update(about(item)["node"] for item in session.items)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Tell which rule is begun."""
        told = about(item)
        node, rule = told["node"], f"{told['role']} {told['rule']}"
        violated, done = self._violated[node], self._done[node]
        event = Event(
            node, Step.BEGINS, name=rule, changed=violated, unchanged=done - violated, ahead=self._ahead[node] - done
        )
        self._out.write(f"{event.line()}\n")
        self._done[node] += 1

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count what is violated."""
        self._violated[about(report)["node"]] += report.failed and report.when != "teardown"

    def pytest_unconfigure(self) -> None:
        """Tell that there is no more to come."""
        self._out.close()
