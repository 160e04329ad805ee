"""The compliance checks run on machines: one process of pytest each, several at a time.

The checks lie in tests/compliance, and can be run without us; here is only how they are started and what they found.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from time import monotonic
from typing import Any

import bedplate
from bedplate.nodes.apply import Event, Kind, Step, event_of
from bedplate.nodes.ssh import Login


class Outcome(StrEnum):
    """What became of a rule on a node."""

    KEPT = "kept"
    VIOLATED = "violated"
    UNJUDGED = "not judged"
    UNSEEN = "not seen"


@dataclass(frozen=True, slots=True)
class Verdict:
    """One rule on one node: `promise` is its sentence, `words` say what is otherwise, or why nobody could tell."""

    role: str
    rule: str
    promise: str
    outcome: Outcome
    words: str = ""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Findings:
    """A node's verdicts; `apart` counts the rules that do not concern it, `unreached` says why there may be none."""

    node: str
    verdicts: tuple[Verdict, ...] = ()
    apart: int = 0
    unreached: str = ""
    seconds: float = 0.0

    def of(self, outcome: Outcome) -> tuple[Verdict, ...]:
        """Return the verdicts of an outcome."""
        return tuple(verdict for verdict in self.verdicts if verdict.outcome is outcome)

    def text(self) -> str:
        """Return the findings as a JSON document."""
        return json.dumps(asdict(self))


def findings_of(text: str) -> tuple[Findings, ...]:
    """Return the findings of a list of such documents."""
    return tuple(_findings(told) for told in json.loads(text))


def _findings(told: dict[str, Any]) -> Findings:
    verdicts = (Verdict(**{**each, "outcome": Outcome(each["outcome"])}) for each in told["verdicts"])
    return Findings(**{**told, "verdicts": tuple(verdicts)})


CHECKS = Path(bedplate.__file__).parent / "compliance"
# Each is a process of 90 MB that mostly waits for its machine.
_AT_A_TIME = 8

Tell = Callable[[Event], None]


@dataclass(frozen=True, slots=True)
class Audit:
    """What is to be looked at: machines of a fleet file, by an OpenSSH configuration; None asks this machine itself.

    `only` limits the rules to those of these roles; `pools` says in which pool a machine serves whose name is EC2's.
    """

    fleet: Path
    config: Path | None = None
    login: Login = Login()  # noqa: RUF009  frozen
    only: frozenset[str] | None = None
    pools: Mapping[str, str] = field(default_factory=dict)


def roles_checked() -> tuple[str, ...]:
    """Return the roles that have rules."""
    return tuple(sorted({role_of(file.stem) for file in CHECKS.glob("test_*.py")}))


def role_of(stem: str) -> str:
    """Return the role that a file of checks is about: `test_hardened_ssh` is a part of `hardened`."""
    return stem.removeprefix("test_").partition("_")[0]


def audited(audit: Audit, nodes: Sequence[str], tell: Tell) -> Iterator[Findings]:
    """Yield what is found on each machine, in their order; one whose checks did not end counts as not seen.

    `tell` is given what happens meanwhile, by several threads.
    """
    with ThreadPoolExecutor(_AT_A_TIME) as pool:
        yield from pool.map(lambda node: _audited(audit, node, tell), nodes)


def _audited(audit: Audit, node: str, tell: Tell) -> Findings:
    start = monotonic()
    tell(Event(node, Step.NOTE, words="logging in" if audit.config else "looking"))
    found = replace(_found(audit, node, tell), seconds=round(monotonic() - start, 1))
    tell(_end(found))
    return found


def _end(found: Findings) -> Event:
    if found.unreached:
        return Event(found.node, Step.TROUBLE, kind=Kind.UNREACHED, words=found.unreached)
    violated = len(found.of(Outcome.VIOLATED))
    others = len(found.verdicts) - violated
    return Event(found.node, Step.DONE, changed=violated, unchanged=others, seconds=found.seconds)


def _way(audit: Audit, node: str) -> tuple[str, ...]:
    """Return testinfra's options: one shell of root's over SSH, or this machine itself."""
    if audit.config is None:
        return (f"--hosts=here://{node}", *(() if os.geteuid() == 0 else ("--sudo",)))
    at = f"{audit.login.user}@{node}" if audit.login.user else node
    key = (f"--ssh-identity-file={audit.login.identity.absolute()}",) if audit.login.identity else ()
    return (f"--hosts=shell://{at}", f"--ssh-config={audit.config.absolute()}", *key, "--sudo")


def _found(audit: Audit, node: str, tell: Tell) -> Findings:
    """Run the checks of a machine and read what they wrote."""
    with tempfile.TemporaryDirectory(prefix="bedplate-") as folder:
        file = Path(folder) / "findings"
        said = _ran((*_command(audit, node), f"--findings={file}"), tell)
        if not file.exists():
            return Findings(node, unreached=f"its checks ended without a finding: {_last(said)}")
        (findings,) = findings_of(file.read_text())
    return findings


def _command(audit: Audit, node: str) -> tuple[str, ...]:
    pytest = (sys.executable, "-m", "pytest", "-p", "testinfra.plugin", "--quiet", "--tb=line")
    setting = ("-c", str(CHECKS / "pytest.ini"), "--rootdir", str(CHECKS))
    about = (f"--fleet={audit.fleet.absolute()}", f"--node={node}")
    pool = (f"--pool={audit.pools[node]}",) if node in audit.pools else ()
    return (*pytest, *setting, *about, *pool, *_way(audit, node), *_files(audit.only))


def _ran(command: Sequence[str], tell: Tell) -> str:
    """Run checks to their end, and hand on what they tell on a pipe of their own; return all else that they said."""
    reading, writing = os.pipe()
    with os.fdopen(reading) as events, tempfile.TemporaryFile() as said:
        try:
            process = subprocess.Popen(  # noqa: S603  our own interpreter
                (*command, f"--events={writing}"), stdout=said, stderr=said, env=_environment(), pass_fds=(writing,)
            )
        finally:
            os.close(writing)
        with process:
            for line in events:
                tell(event_of(line))
        said.seek(0)
        return said.read().decode(errors="replace")


def _files(only: frozenset[str] | None) -> tuple[str, ...]:
    if only is None:
        return (str(CHECKS),)
    return tuple(str(file) for file in sorted(CHECKS.glob("test_*.py")) if role_of(file.stem) in only)


def _environment() -> dict[str, str]:
    """Return this process's environment without what would change how pytest runs, or what an assertion does."""
    left_out = ("PYTEST_", "PYTHONOPTIMIZE")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(left_out)}
    return {**kept, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}


def _last(said: str) -> str:
    lines = said.strip().splitlines()
    return lines[-1] if lines else "they said nothing"
