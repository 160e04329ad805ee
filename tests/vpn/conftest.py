"""Summary of the VPN tests: the number of cases, and the connections that were refused."""

import re

import pytest

from tests.testlab.run import need_program, need_root

PROGRAMS = ("ip", "nft", "ping", "tcpdump", "iperf3", "faketime", "dnsmasq", "openvpn", "charon-systemd", "swanctl")


@pytest.fixture(scope="session", autouse=True)
def _daemons() -> None:
    """Skip without the daemons and root, which every laboratory needs."""
    need_root()
    for program in PROGRAMS:
        need_program(program)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the number of cases, and the names of refused connections."""
    passed = [report.nodeid for report in terminalreporter.getreports("passed") if report.when == "call"]
    cases = [node_id for node_id in passed if "tests/vpn/" in node_id]
    if not cases:
        return
    # Tests of refused connections are in files of that name, with one case in brackets each.
    refused = [match[1] for case in cases if (match := re.search(r"_refus\w*\.py::.*\[(.+)\]", case))]
    terminalreporter.write_line(f"VPN: {len(cases)} cases run, {len(refused)} refused: {', '.join(sorted(refused))}")
