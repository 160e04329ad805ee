"""What a run of the laboratories says at its end: how many cases ran, and who was refused."""

import re

import pytest

from tests.testlab.run import need_program, need_root

PROGRAMS = ("ip", "nft", "ping", "tcpdump", "iperf3", "faketime", "dnsmasq", "openvpn", "charon-systemd", "swanctl")


@pytest.fixture(scope="session", autouse=True)
def _daemons() -> None:
    """Ask for what every laboratory needs: daemons, in namespaces of their own."""
    need_root()
    for program in PROGRAMS:
        need_program(program)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the cases, and those in which somebody was kept out."""
    passed = [report.nodeid for report in terminalreporter.getreports("passed") if report.when == "call"]
    cases = [one for one in passed if "tests/vpn/" in one]
    if not cases:
        return
    # Tests of refusals are kept in files of that name, a case in brackets each.
    refused = [found[1] for one in cases if (found := re.search(r"_refus\w*\.py::.*\[(.+)\]", one))]
    terminalreporter.write_line(f"VPN: {len(cases)} cases run, {len(refused)} refused: {', '.join(sorted(refused))}")
