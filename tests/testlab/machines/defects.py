"""Defects planted by hand, one for each rule of the compliance checks: a table a role under tests/data."""

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
"""A role, and the name of a rule of it."""


class Where(StrEnum):
    """Machines that are booted for other tests, too, and on which defects are planted: a module of tests/nodes each."""

    LAB = "lab"
    """Four machines of a room, with all their roles."""
    LAPTOPS = "laptops"
    """A gateway that laptops dial, with keys and daemons."""
    CLOUD = "cloud"
    """A workbench of the cloud, with storage of AWS's."""
    KERNEL = "kernel"
    """A workbench with a kernel of its own, and disks for scratch."""


@dataclass(frozen=True, slots=True)
class Defect:
    """What breaks a rule on a machine, in shell; `files` are put back, `undo` does the rest."""

    plant: str = "true"
    undo: str = "true"
    files: tuple[str, ...] = ()
    on: str = WORKBENCH
    where: Where = Where.LAB


def rules() -> tuple[Rule, ...]:
    """Return every rule of the checks, as role and rule, without running any."""
    return tuple(sorted(_rules()))


def defects() -> dict[Rule, Defect]:
    """Return every planted defect by role and rule; ruamel refuses a rule that stands twice in a table."""
    return {
        (table.stem, rule): _defect(entry)
        for table in sorted(TABLES.glob("*.yaml"))
        for rule, entry in YAML(typ="safe").load(table.read_text()).items()
    }


def planted(where: Where) -> dict[Rule, Defect]:
    """Return the defects that are planted there."""
    return {rule: each for rule, each in defects().items() if each.where is where}


def _defect(entry: dict[str, Any]) -> Defect:
    return Defect(**{**entry, "files": tuple(entry.get("files", ())), "where": Where(entry.get("where", Where.LAB))})


def _rules() -> Iterator[Rule]:
    for file in CHECKS.glob("test_*.py"):
        for node in ast.parse(file.read_text()).body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                yield role_of(file.stem), node.name.removeprefix("test_").replace("_", "-")


_SAVED = "/run/planted"
_CALLED = {"passed": "kept", "failed": "violated", "skipped": "not judged"}
_MISSED = "kept, then kept: "


class Planting:
    """Runs each rule without and with its defect, and takes note."""

    def __init__(self, order: dict[str, Any]) -> None:
        self._order = order
        self._found: dict[str, str] = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> bool:
        """Look, plant, look, undo; a rule of several cases is done when one of them has found the defect."""
        about = dict(item.user_properties)
        rule = f"{about['role']}/{str(about['rule']).partition('[')[0]}"
        defect = self._order["defects"].get(rule)
        if defect and self._found.get(rule, _MISSED) == _MISSED:
            try:
                self._found[rule] = self._looked(item, defect)
            except subprocess.SubprocessError as error:
                self._found[rule] = f"not planted: {error}: {getattr(error, 'stderr', '')}"
        return True

    def _looked(self, item: pytest.Item, defect: dict[str, Any]) -> str:
        before, words = _ran(item)
        if before not in {"kept", "not judged"}:
            return f"{before} without its defect: {words}"
        with self._planted(defect):
            after, words = _ran(item)
        return f"{before}, then {after}" + ("" if after == "violated" else f": {words}")

    def pytest_sessionfinish(self) -> None:
        """Hand over what was found."""
        Path(self._order["found"]).write_text(json.dumps(self._found))

    @contextmanager
    def _planted(self, defect: dict[str, Any]) -> Iterator[None]:
        files = [shlex.quote(file) for file in defect["files"]]
        self._run(f"rm -rf {_SAVED}; mkdir {_SAVED}", *(_save(number, file) for number, file in enumerate(files)))
        try:
            self._run(defect["plant"])
            yield
        finally:
            self._run(*(_restore(number, file) for number, file in enumerate(files)), defect["undo"])

    def _run(self, *lines: str) -> None:
        command = [*self._order["console"], "\n".join(lines)]
        subprocess.run(command, text=True, capture_output=True, timeout=120, check=True)


def _ran(item: pytest.Item) -> tuple[str, str]:
    """Run a rule, and return its outcome and words: a check that could not even begin has found nothing."""
    # Nothing may be left of an earlier look: fixtures of whole modules are made anew as well.
    reports = runtestprotocol(item, log=False, nextitem=None)
    for report in reports:
        if report.when != "call" and report.failed:
            return f"broken in {report.when}", report.longreprtext[-2000:]
    said = next((report for report in reports if report.when == "call"), reports[0])
    return _CALLED[said.outcome], said.longreprtext[-2000:]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add where the order lies."""
    parser.addoption("--planted", metavar="FILE", help="the order of what to plant")


def pytest_configure(config: pytest.Config) -> None:
    """Read the order."""
    config.pluginmanager.register(Planting(json.loads(Path(config.getoption("--planted")).read_text())))


def _save(number: int, file: str) -> str:
    return _copy(file, f"{_SAVED}/{number}")


def _restore(number: int, file: str) -> str:
    return f"rm -rf {file}; {_copy(f'{_SAVED}/{number}', file)}"


def _copy(source: str, target: str) -> str:
    """Copy what there is, a link as a link."""
    return f"if [ -e {source} ] || [ -L {source} ]; then cp -a {source} {target}; fi"
