"""Tells whoever started the checks what they are at, as an apply does: a line of JSON whenever a rule is begun."""

from collections import Counter
from typing import IO

import pytest

from bedplate.nodes.event import Event, Step


class Teller:
    """What is told of each machine, kept by the hooks of pytest; a reader who has left ends the checks."""

    def __init__(self, out: IO[str]) -> None:
        self._out = out
        self._ahead: Counter[str] = Counter()
        self._done: Counter[str] = Counter()
        self._violated: Counter[str] = Counter()

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Count the rules of each machine."""
        self._ahead.update(_about(item)["node"] for item in session.items)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Tell which rule is begun."""
        about = _about(item)
        node, rule = about["node"], f"{about['role']} {about['rule']}"
        violated, done = self._violated[node], self._done[node]
        told = Event(
            node, Step.BEGINS, name=rule, changed=violated, unchanged=done - violated, ahead=self._ahead[node] - done
        )
        self._out.write(f"{told.line()}\n")
        self._done[node] += 1

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count what is violated."""
        self._violated[_about(report)["node"]] += report.failed and report.when != "teardown"

    def pytest_unconfigure(self) -> None:
        """Tell that there is no more to come."""
        self._out.close()


def _about(of: pytest.Item | pytest.TestReport) -> dict[str, str]:
    return {key: str(value) for key, value in of.user_properties}
