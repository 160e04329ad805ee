"""The rules of the compliance checks, and the table of their planted defects, without a machine."""

import ast
import re
from pathlib import Path

from bedplate.nodes.audit import CHECKS, role_of
from tests.support.planted import Where, defects, rules

NODES = Path(__file__).parents[1] / "nodes"


def test_every_rule_has_its_planted_defect() -> None:
    """A rule that nobody has seen fail may be one that cannot."""
    assert set(rules()) - set(defects()) == set()


def test_every_planted_defect_is_of_a_rule() -> None:
    """What is renamed or gone leaves no defect behind that nobody looks for."""
    assert set(defects()) - set(rules()) == set()


def test_every_defect_plants_something() -> None:
    """A defect that changes nothing shows nothing."""
    assert [rule for rule, defect in defects().items() if defect.plant == "true"] == []


def test_every_place_of_defects_is_looked_at() -> None:
    """A module of tests/nodes plants what the table says of its machines."""
    asked = [
        name for file in NODES.glob("test_*.py") for name in re.findall(r"planted\(Where\.(\w+)", file.read_text())
    ]

    assert sorted(asked) == sorted(where.name for where in Where)


def test_rules_have_names_of_their_own() -> None:
    """A report names a rule by its role and its name."""
    assert len(set(rules())) == len(rules())


def test_no_rule_is_where_nobody_counts_it() -> None:
    """Pytest would run it in a class, and in a folder below, and not miss its defect."""
    written = {
        (role_of(file.stem), node.name.removeprefix("test").strip("_").replace("_", "-"))
        for file in CHECKS.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test")
    }

    assert written == set(rules())
