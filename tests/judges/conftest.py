"""Fixtures for the tests of policy scanners: the stacks of examples/lab.yaml, and checkov's findings in them."""

import contextlib
import io
import json
from typing import Any

import pytest

from bedplate.cli import run
from tests.testlab.machines.judges import Verdict, checkov, write_plans
from tests.testlab.rehearsal.programs import EXAMPLES

Node = dict[str, Any]


@pytest.fixture(scope="session")
def graph() -> list[Node]:
    """Return the output of `bedplate graph --all` for the larger example."""
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        assert run(["graph", "--all", str(EXAMPLES / "lab.yaml")]) == 0
    nodes: list[Node] = json.loads(output.getvalue())
    return nodes


@pytest.fixture(scope="session")
def verdict(graph: list[Node], tmp_path_factory: pytest.TempPathFactory) -> Verdict:
    """Return checkov's findings in all stacks."""
    return checkov(write_plans(tmp_path_factory.mktemp("stacks"), {"lab": graph}))
