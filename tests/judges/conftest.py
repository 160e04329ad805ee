"""What the judges look at: the lab's stacks as one rehearsal made them, and what checkov says of them."""

import contextlib
import io
import json
from typing import Any

import pytest

from bedplate.cli import run
from tests.testlab.machines.judges import Verdict, checkov, written
from tests.testlab.rehearsal.programs import EXAMPLES

Node = dict[str, Any]


@pytest.fixture(scope="session")
def graph() -> list[Node]:
    """Give what `bedplate graph --all` prints of the larger example."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        assert run(["graph", "--all", str(EXAMPLES / "lab.yaml")]) == 0
    nodes: list[Node] = json.loads(printed.getvalue())
    return nodes


@pytest.fixture(scope="session")
def verdict(graph: list[Node], tmp_path_factory: pytest.TempPathFactory) -> Verdict:
    """Give what checkov says of all stacks."""
    return checkov(written(tmp_path_factory.mktemp("stacks"), {"lab": graph}))
