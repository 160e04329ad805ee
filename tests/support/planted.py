"""Defects planted by hand, one for each rule of the compliance checks: a table a role under tests/data."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from bedplate.nodes.audit import CHECKS, role_of

TABLES = Path(__file__).parents[1] / "data" / "compliance" / "defects"
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
