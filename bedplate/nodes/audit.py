"""The compliance checks run on machines: one process of pytest each, several at a time.

The checks lie in tests/compliance, and can be run without us; here is only how they are started and what they found.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import monotonic

import bedplate
from bedplate.nodes.ssh_config import Login
from bedplate.nodes.verdict import Findings, findings_of

CHECKS = Path(bedplate.__file__).parents[1] / "tests" / "compliance"
# Each is a process of 90 MB that mostly waits for its machine.
_AT_A_TIME = 8


@dataclass(frozen=True, slots=True)
class Audit:
    """What is to be looked at: machines of a fleet file, by an OpenSSH configuration; None asks this machine itself.

    `role` limits the rules to those of one role; `pools` says in which pool a machine serves whose name is EC2's.
    """

    fleet: Path
    config: Path | None = None
    login: Login = Login()  # noqa: RUF009  frozen
    role: str | None = None
    pools: Mapping[str, str] = field(default_factory=dict)


def roles_checked() -> tuple[str, ...]:
    """Return the roles that have rules."""
    return tuple(sorted({role_of(file.stem) for file in CHECKS.glob("test_*.py")}))


def role_of(stem: str) -> str:
    """Return the role that a file of checks is about: `test_hardened_ssh` is a part of `hardened`."""
    return stem.removeprefix("test_").partition("_")[0]


def audited(audit: Audit, nodes: Sequence[str]) -> Iterator[Findings]:
    """Yield what is found on each machine, in their order; one whose checks did not end counts as not seen."""
    with ThreadPoolExecutor(_AT_A_TIME) as pool:
        yield from pool.map(lambda node: _audited(audit, node), nodes)


def _audited(audit: Audit, node: str) -> Findings:
    start = monotonic()
    found = _found(audit, node, _way(audit, node))
    return replace(found, seconds=round(monotonic() - start, 1))


def _way(audit: Audit, node: str) -> tuple[str, ...]:
    """Return testinfra's options: one shell of root's over SSH, or this machine itself."""
    if audit.config is None:
        return (f"--hosts=here://{node}", *(() if os.geteuid() == 0 else ("--sudo",)))
    at = f"{audit.login.user}@{node}" if audit.login.user else node
    key = (f"--ssh-identity-file={audit.login.identity.absolute()}",) if audit.login.identity else ()
    return (f"--hosts=shell://{at}", f"--ssh-config={audit.config.absolute()}", *key, "--sudo")


def _found(audit: Audit, node: str, way: tuple[str, ...]) -> Findings:
    """Run the checks of a machine and read what they wrote."""
    with tempfile.TemporaryDirectory(prefix="bedplate-") as folder:
        file = Path(folder) / "findings"
        command = (
            *(
                sys.executable,
                "-m",
                "pytest",
                "-p",
                "testinfra.plugin",
                "--quiet",
                "--tb=line",
                "-c",
                str(CHECKS / "pytest.ini"),
            ),
            *("--rootdir", str(CHECKS), f"--fleet={audit.fleet.absolute()}", f"--node={node}", f"--findings={file}"),
            *((f"--pool={audit.pools[node]}",) if node in audit.pools else ()),
            *(*way, *_files(audit.role)),
        )
        done = subprocess.run(command, errors="replace", capture_output=True, env=_environment(), check=False)  # noqa: S603
        if not file.exists():
            return Findings(node, unreached=f"its checks ended without a finding: {_last(done.stdout + done.stderr)}")
        (findings,) = findings_of(file.read_text())
    return findings


def _files(role: str | None) -> tuple[str, ...]:
    if role is None:
        return (str(CHECKS),)
    return tuple(str(file) for file in sorted(CHECKS.glob("test_*.py")) if role_of(file.stem) == role)


def _environment() -> dict[str, str]:
    """Return this process's environment without what would change how pytest runs, or what an assertion does."""
    left_out = ("PYTEST_", "PYTHONOPTIMIZE")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(left_out)}
    return {**kept, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}


def _last(said: str) -> str:
    lines = said.strip().splitlines()
    return lines[-1] if lines else "they said nothing"
