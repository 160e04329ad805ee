"""Tells whoever started the checks what they are at, as an apply does: a line of JSON whenever a rule is begun."""

from collections import Counter
from typing import IO

import pytest

from bedplate.nodes.event import Event, Step
from tests.compliance.ledger import about


class Teller:
    """What is told of each machine, kept by the hooks of pytest; a reader who has left ends the checks."""

    def __init__(self, out: IO[str]) -> None:
        self._out = out
        self._ahead: Counter[str] = Counter()
        self._done: Counter[str] = Counter()
        self._violated: Counter[str] = Counter()

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Count the rules of each machine."""
        self._ahead.update(about(item)["node"] for item in session.items)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Tell which rule is begun."""
        told = about(item)
        node, rule = told["node"], f"{told['role']} {told['rule']}"
        violated, done = self._violated[node], self._done[node]
        event = Event(
            node, Step.BEGINS, name=rule, changed=violated, unchanged=done - violated, ahead=self._ahead[node] - done
        )
        self._out.write(f"{event.line()}\n")
        self._done[node] += 1

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count what is violated."""
        self._violated[about(report)["node"]] += report.failed and report.when != "teardown"

    def pytest_unconfigure(self) -> None:
        """Tell that there is no more to come."""
        self._out.close()
