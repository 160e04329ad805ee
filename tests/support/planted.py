"""Defects planted by hand, one for each rule of the compliance checks: a table a role under tests/data."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ruamel.yaml import YAML

from bedplate.nodes.audit import CHECKS, role_of

TABLES = Path(__file__).parents[1] / "data" / "compliance" / "defects"
WORKBENCH = "titan-03.cellar"
# Its rules are of gateways that laptops dial, which have keys and daemons: no machine of the lab.
LAPTOPS = "openvpn"


@dataclass(frozen=True, slots=True)
class Defect:
    """What breaks a rule on a machine, in shell; `files` are put back, `undo` does the rest.

    Where a test node cannot show it, `here` says why, and nothing is planted.
    """

    plant: str = "true"
    undo: str = "true"
    files: tuple[str, ...] = ()
    on: str = WORKBENCH
    here: str = ""


def rules() -> tuple[tuple[str, str], ...]:
    """Return every rule of the checks, as role and rule, without running any."""
    return tuple(sorted(_rules()))


def defects() -> dict[tuple[str, str], Defect]:
    """Return every planted defect by role and rule."""
    return {
        (table.stem, rule): Defect(**{**entry, "files": tuple(entry.get("files", ()))})
        for table in sorted(TABLES.glob("*.yaml"))
        for rule, entry in YAML(typ="safe").load(table.read_text()).items()
    }


def _rules() -> Iterator[tuple[str, str]]:
    for file in CHECKS.glob("test_*.py"):
        for node in ast.parse(file.read_text()).body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                yield role_of(file.stem), node.name.removeprefix("test_").replace("_", "-")
