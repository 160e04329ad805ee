"""Every node: what ssh asks and lends when somebody goes on from here."""

from collections.abc import Mapping

import pytest
from testinfra.host import Host

from tests.compliance.openssh import keywords


@pytest.fixture(scope="module")
def client(host: Host) -> Mapping[str, str]:
    """Give what ssh asks for on this machine where its user asks for nothing."""
    return keywords(host.check_output("ssh -F /etc/ssh/ssh_config -G somewhere"))


def test_ssh_from_here_asks_whom_it_reaches(client: Mapping[str, str]) -> None:
    """A host that is not known, or is another than before, is not entered without a word."""
    assert client["stricthostkeychecking"] in {"ask", "true", "yes"}
    assert client["checkhostip"] == "yes"
    assert client["batchmode"] == "no"
    assert (client["port"], client["addressfamily"]) == ("22", "any")


def test_ssh_from_here_speaks_no_old_algorithm(client: Mapping[str, str]) -> None:
    """What people reach from here, they reach by modern means."""
    for keyword in ("kexalgorithms", "ciphers", "macs"):
        names = client[keyword].split(",")
        assert not [name for name in names if any(old in name for old in ("sha1", "cbc", "nistp", "md5", "group14"))]


def test_ssh_from_here_lends_nothing(client: Mapping[str, str]) -> None:
    """Agent, screen, tickets and networks of this machine stay here unless their person says so."""
    for keyword in (
        "forwardagent",
        "forwardx11",
        "hostbasedauthentication",
        "permitlocalcommand",
    ):
        assert client[keyword] == "no", keyword
    assert client["tunnel"] in {"no", "false"}
    for ticket in ("gssapiauthentication", "gssapidelegatecredentials"):
        assert client.get(ticket, "no") == "no", ticket
