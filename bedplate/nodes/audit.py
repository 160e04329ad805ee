"""The compliance checks run on machines: one process of pytest each, several at a time.

The checks lie in tests/compliance, and can be run without us; here is only how they are started and what they found.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic

import bedplate
from bedplate.errors import BedplateError
from bedplate.nodes.shared_connection import shared_connection
from bedplate.nodes.verdict import Findings, findings_of

CHECKS = Path(bedplate.__file__).parents[1] / "tests" / "compliance"
# Each is a process of 90 MB that mostly waits for its machine.
_AT_A_TIME = 8


@dataclass(frozen=True, slots=True)
class Audit:
    """What is to be looked at: machines of a fleet file, by SSH with a configuration of one's own or the user's.

    `local` says that the machine is this one; `role` limits the rules to those of one role.
    """

    fleet: Path
    ssh_config: Path | None = None
    local: bool = False
    role: str | None = None


def roles_checked() -> tuple[str, ...]:
    """Return the roles that have rules."""
    return tuple(sorted(file.stem.removeprefix("test_") for file in CHECKS.glob("test_*.py")))


def audited(audit: Audit, nodes: Sequence[str]) -> Iterator[Findings]:
    """Yield what is found on each machine, in their order. Raises BedplateError where the checks themselves fail."""
    with ThreadPoolExecutor(_AT_A_TIME) as pool:
        yield from pool.map(lambda node: _audited(audit, node), nodes)


def _audited(audit: Audit, node: str) -> Findings:
    start = monotonic()
    with tempfile.TemporaryDirectory(prefix="bedplate-") as folder:
        found = Path(folder) / "findings"
        if audit.local:
            said = _run(audit, node, found, _here())
        else:
            with shared_connection(Path(folder), node, audit.ssh_config) as config:
                said = _run(audit, node, found, (f"--hosts=ssh://{node}", f"--ssh-config={config}", "--sudo"))
        if not found.exists():
            raise BedplateError(f"the checks of {node} ended without a finding: {said}")
        (findings,) = findings_of(found.read_text())
    return replace(findings, seconds=round(monotonic() - start, 1))


def _here() -> tuple[str, ...]:
    return ("--hosts=local://", *(() if os.geteuid() == 0 else ("--sudo",)))


def _run(audit: Audit, node: str, found: Path, way: tuple[str, ...]) -> str:
    """Run the checks of a machine; return the last that they said."""
    command = (
        *(sys.executable, "-m", "pytest", "-p", "testinfra.plugin", "--quiet", "-c", str(CHECKS / "pytest.ini")),
        *("--rootdir", str(CHECKS), f"--fleet={audit.fleet.absolute()}", f"--node={node}", f"--findings={found}"),
        *way,
        str(CHECKS / f"test_{audit.role}.py" if audit.role else CHECKS),
    )
    done = subprocess.run(command, text=True, capture_output=True, env=_environment(), check=False)  # noqa: S603
    lines = (done.stdout + done.stderr).strip().splitlines()
    return lines[-1] if lines else f"status {done.returncode}"


def _environment() -> dict[str, str]:
    """Return this process's environment without what would change how pytest runs."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    return {**kept, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
