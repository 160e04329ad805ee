"""What a run of the laboratories says at its end: how many cases ran, and who was refused."""

import os
import re

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Stop at once where nothing here could run: daemons in namespaces of their own need root."""
    if items and os.geteuid() != 0:
        pytest.exit("the laboratories need root", returncode=4)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the cases, and those in which somebody was kept out."""
    passed = [report.nodeid for report in terminalreporter.getreports("passed") if report.when == "call"]
    cases = [one for one in passed if "tests/vpn/" in one]
    if not cases:
        return
    # Tests of refusals are kept in files of that name, a case in brackets each.
    refused = [found[1] for one in cases if (found := re.search(r"_refus\w*\.py::.*\[(.+)\]", one))]
    terminalreporter.write_line(f"VPN: {len(cases)} cases run, {len(refused)} refused: {', '.join(sorted(refused))}")
