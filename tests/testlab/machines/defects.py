"""Seeded defects: one for each compliance rule, from the tables in tests/data/compliance/defects, one table per role.

As a pytest plugin (`--defects FILE`), the module runs each rule without and with its defect on a node.
"""

import ast
import json
import shlex
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import pytest
from _pytest.runner import runtestprotocol
from ruamel.yaml import YAML

from bedplate.nodes.audit import CHECKS, role_of

TABLES = Path(__file__).parents[2] / "data" / "compliance" / "defects"
WORKBENCH = "titan-03.cellar"
Rule = tuple[str, str]
"""A role, and the name of one of its rules."""


class Where(StrEnum):
    """The sets of nodes on which defects are seeded; each is booted by a module of tests/nodes."""

    LAB = "lab"
    """Four nodes of a site, with all their roles."""
    LAPTOPS = "laptops"
    """A laptop gateway, with keys and daemons."""
    CLOUD = "cloud"
    """A cloud workbench, with simulated AWS storage."""
    KERNEL = "kernel"
    """A workbench with its own kernel, and scratch disks."""
    GPU = "gpu"
    """A workbench with a fake driver."""
    MEMBER = "member"
    """A member of the control plane: its files and kubeadm's, in mounts of their own."""
    JOINED = "joined"
    """A worker of a site that has joined: its files, in mounts of their own."""
    FABRIC = "fabric"
    """A cloud workbench with a fake EFA."""
    HUB = "hub"
    """The hub, with the roles of its machine."""


@dataclass(frozen=True, slots=True)
class Defect:
    """Shell commands that break a rule (`seed`); `files` are restored afterwards, and `undo` reverts the rest."""

    seed: str = "true"
    undo: str = "true"
    files: tuple[str, ...] = ()
    on: str = WORKBENCH
    where: Where = Where.LAB


def rules() -> tuple[Rule, ...]:
    """Return all compliance rules, from the source."""
    return tuple(sorted(_rules()))


def defects() -> dict[Rule, Defect]:
    """Return all seeded defects by rule; ruamel refuses duplicate rules in a table."""
    return {
        (table.stem, rule): _defect(entry)
        for table in sorted(TABLES.glob("*.yaml"))
        for rule, entry in YAML(typ="safe").load(table.read_text()).items()
    }


def defects_at(where: Where) -> dict[Rule, Defect]:
    """Return the defects that are seeded on a set of nodes."""
    return {rule: defect for rule, defect in defects().items() if defect.where is where}


def _defect(entry: dict[str, Any]) -> Defect:
    return Defect(**{**entry, "files": tuple(entry.get("files", ())), "where": Where(entry.get("where", Where.LAB))})


def _rules() -> Iterator[Rule]:
    for file in CHECKS.glob("test_*.py"):
        for node in ast.parse(file.read_text()).body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                yield role_of(file.stem), node.name.removeprefix("test_").replace("_", "-")


_SAVED = "/run/seeded"
_UNDETECTED = "passed, then passed: "


class DefectPlugin:
    """Pytest plugin that runs each rule without and with its defect, and stores the outcomes."""

    def __init__(self, order: dict[str, Any]) -> None:
        self._order = order
        self._outcomes: dict[str, str] = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> bool:
        """Run the rule without and with the defect; of a parametrized rule, until one case detects the defect."""
        properties = dict(item.user_properties)
        rule = f"{properties['role']}/{str(properties['rule']).partition('[')[0]}"
        defect = self._order["defects"].get(rule)
        if defect and self._outcomes.get(rule, _UNDETECTED) == _UNDETECTED:
            try:
                self._outcomes[rule] = self._run_with_defect(item, defect)
            except subprocess.SubprocessError as error:
                self._outcomes[rule] = f"not seeded: {error}: {getattr(error, 'stderr', '')}"
        return True

    def _run_with_defect(self, item: pytest.Item, defect: dict[str, Any]) -> str:
        before, text = _run_rule(item)
        if before not in {"passed", "skipped"}:
            return f"{before} without its defect: {text}"
        with self._seeded(defect):
            after, text = _run_rule(item)
        return f"{before}, then {after}" + ("" if after == "failed" else f": {text}")

    def pytest_sessionfinish(self) -> None:
        """Write the outcomes."""
        Path(self._order["outcomes"]).write_text(json.dumps(self._outcomes))

    @contextmanager
    def _seeded(self, defect: dict[str, Any]) -> Iterator[None]:
        files = [shlex.quote(file) for file in defect["files"]]
        self._run(f"rm -rf {_SAVED}; mkdir {_SAVED}", *(_save(number, file) for number, file in enumerate(files)))
        try:
            self._run(defect["seed"])
            yield
        finally:
            self._run(*(_restore(number, file) for number, file in enumerate(files)), defect["undo"])

    def _run(self, *lines: str) -> None:
        command = [*self._order["console"], "\n".join(lines)]
        subprocess.run(command, text=True, capture_output=True, timeout=120, check=True)


def _run_rule(item: pytest.Item) -> tuple[str, str]:
    """Run a rule, and return its outcome and text; an error in a fixture is not a detected defect."""
    # Also tears down module fixtures, so that the next run reads the node again.
    reports = runtestprotocol(item, log=False, nextitem=None)
    for report in reports:
        if report.when != "call" and report.failed:
            return f"error in {report.when}", report.longreprtext[-2000:]
    result = next((report for report in reports if report.when == "call"), reports[0])
    return result.outcome, result.longreprtext[-2000:]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that names the order file."""
    parser.addoption("--defects", metavar="FILE", help="seed the defects of this file")


def pytest_configure(config: pytest.Config) -> None:
    """Register the plugin with the order."""
    config.pluginmanager.register(DefectPlugin(json.loads(Path(config.getoption("--defects")).read_text())))


def _save(number: int, file: str) -> str:
    return _copy(file, f"{_SAVED}/{number}")


def _restore(number: int, file: str) -> str:
    return f"rm -rf {file}; {_copy(f'{_SAVED}/{number}', file)}"


def _copy(source: str, target: str) -> str:
    """Return a command that copies a file or folder if it exists; symbolic links stay links."""
    return f"if [ -e {source} ] || [ -L {source} ]; then cp -a {source} {target}; fi"
