"""Runs of the compliance checks: one pytest process for each machine, several in parallel, and their findings.

The checks are in `bedplate/compliance`; pytest can also run them directly.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from time import monotonic
from typing import Any

import bedplate
from bedplate.foreign import LARGE, LARGEST, parse_json
from bedplate.nodes.apply import Event, NodeErrorKind, Step, parse_event
from bedplate.nodes.ssh import Login


class RuleOutcome(StrEnum):
    """The result of a rule on a node."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of one rule on one node; `words` is the difference found, or why the result is unknown."""

    role: str
    rule: str
    description: str
    outcome: RuleOutcome
    words: str = ""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Findings:
    """A node's verdicts; `apart` counts rules that do not apply to it, `unreached` is the error of a failed run."""

    node: str
    verdicts: tuple[Verdict, ...] = ()
    apart: int = 0
    unreached: str = ""
    seconds: float = 0.0

    def of(self, outcome: RuleOutcome) -> tuple[Verdict, ...]:
        """Return the verdicts with an outcome."""
        return tuple(verdict for verdict in self.verdicts if verdict.outcome is outcome)

    def text(self) -> str:
        """Return the findings as a JSON document."""
        return json.dumps(asdict(self))


def parse_findings(text: str | bytes) -> tuple[Findings, ...]:
    """Return the findings in a JSON list."""
    return tuple(_parse_findings(document) for document in parse_json(text, LARGE))


def _parse_findings(document: dict[str, Any]) -> Findings:
    verdicts = (Verdict(**{**fields, "outcome": RuleOutcome(fields["outcome"])}) for fields in document["verdicts"])
    return Findings(**{**document, "verdicts": tuple(verdicts)})


CHECKS = Path(bedplate.__file__).parent / "compliance"
# Each is a process of 90 MB that mostly waits for its machine.
_PARALLEL = 8

EventHandler = Callable[[Event], None]


@dataclass(frozen=True, slots=True)
class AuditRequest:
    """The request for an audit: the fleet file, and an OpenSSH configuration; without one, this machine is checked.

    `document` is the node document of this machine, in place of a fleet file. `only` limits the rules to these roles.
    `pools` are the pools of machines without a registered name. `marker` limits the rules to a marker of pytest.
    """

    fleet: Path | None = None
    config: Path | None = None
    login: Login = Login()  # noqa: RUF009  frozen
    only: frozenset[str] | None = None
    pools: Mapping[str, str] = field(default_factory=dict)
    document: Path | None = None
    marker: str = ""


def roles_checked() -> tuple[str, ...]:
    """Return the roles that have rules."""
    return tuple(sorted({role_of(file.stem) for file in CHECKS.glob("test_*.py")}))


def role_of(stem: str) -> str:
    """Return the role of a file of checks: `test_hardened_ssh` belongs to `hardened`."""
    return stem.removeprefix("test_").partition("_")[0]


def run_audit(audit: AuditRequest, nodes: Sequence[str], on_event: EventHandler) -> Iterator[Findings]:
    """Run the checks on each machine and yield the findings in order; a failed run has `unreached` set.

    `on_event` receives the events, from several threads.
    """
    with ThreadPoolExecutor(_PARALLEL) as pool:
        yield from pool.map(lambda node: _audit_node(audit, node, on_event), nodes)


def _audit_node(audit: AuditRequest, node: str, on_event: EventHandler) -> Findings:
    start = monotonic()
    on_event(Event(node, Step.NOTE, words="logging in" if audit.config else "checking"))
    findings = replace(_run_checks(audit, node, on_event), seconds=round(monotonic() - start, 1))
    on_event(_final_event(findings))
    return findings


def _final_event(findings: Findings) -> Event:
    if findings.unreached:
        return Event(findings.node, Step.ERROR, kind=NodeErrorKind.UNREACHED, words=findings.unreached)
    failed = len(findings.of(RuleOutcome.FAILED))
    others = len(findings.verdicts) - failed
    return Event(findings.node, Step.DONE, changed=failed, unchanged=others, seconds=findings.seconds)


def _connection_options(audit: AuditRequest, node: str) -> tuple[str, ...]:
    """Return testinfra's options: root over SSH, or on this machine."""
    if audit.config is None:
        return (f"--hosts=here://{node}",)
    target = f"{audit.login.user}@{node}" if audit.login.user else node
    key = (f"--ssh-identity-file={audit.login.identity.absolute()}",) if audit.login.identity else ()
    return (f"--hosts=shell://{target}", f"--ssh-config={audit.config.absolute()}", *key)


def _run_checks(audit: AuditRequest, node: str, on_event: EventHandler) -> Findings:
    """Run the checks on a machine and read their findings."""
    with tempfile.TemporaryDirectory(prefix="bedplate-") as folder:
        file = Path(folder) / "findings"
        output = _run((*_command(audit, node), f"--findings={file}"), on_event)
        if not file.exists():
            return Findings(node, unreached=f"the checks failed: {_last_line(output)}")
        try:
            with file.open("rb") as stream:
                (findings,) = parse_findings(stream.read(LARGE + 1))
        except (ValueError, TypeError, KeyError):
            return Findings(node, unreached="unreadable findings")
    return findings


def _command(audit: AuditRequest, node: str) -> tuple[str, ...]:
    pytest = (sys.executable, "-m", "pytest", "-p", "testinfra.plugin", "--quiet", "--tb=line")
    config = ("-c", str(CHECKS / "pytest.ini"), "--rootdir", str(CHECKS))
    source = f"--document={audit.document}" if audit.document else f"--fleet={(audit.fleet or Path()).absolute()}"
    subject = (source, f"--node={node}")
    pool = (f"--pool={audit.pools[node]}",) if node in audit.pools else ()
    marked = ("-m", audit.marker) if audit.marker else ()
    return (*pytest, *config, *subject, *pool, *marked, *_connection_options(audit, node), *_files(audit.only))


def _run(command: Sequence[str], on_event: EventHandler) -> str:
    """Run a command, pass its events from a dedicated pipe to `on_event`, and return its output."""
    reading, writing = os.pipe()
    with os.fdopen(reading) as events, tempfile.TemporaryFile() as output:
        try:
            process = subprocess.Popen(  # noqa: S603  this interpreter
                (*command, f"--events={writing}"), stdout=output, stderr=output, env=_environment(), pass_fds=(writing,)
            )
        finally:
            os.close(writing)
        with process:
            for line in events:
                with suppress(ValueError, TypeError, KeyError):  # findings have the same, and are checked
                    on_event(parse_event(line))
        output.seek(max(0, output.seek(0, os.SEEK_END) - LARGEST))
        return output.read().decode(errors="replace")


def _files(only: frozenset[str] | None) -> tuple[str, ...]:
    if only is None:
        return (str(CHECKS),)
    return tuple(str(file) for file in sorted(CHECKS.glob("test_*.py")) if role_of(file.stem) in only)


def _environment() -> dict[str, str]:
    """Return the environment without variables that change how pytest runs or that disable assertions."""
    excluded = ("PYTEST_", "PYTHONOPTIMIZE")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(excluded)}
    return {**kept, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}


def _last_line(output: str) -> str:
    lines = output.strip().splitlines()
    return lines[-1] if lines else "no output"
