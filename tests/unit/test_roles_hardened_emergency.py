"""The text of what stands in for a packet filter that a boot cannot load."""

from ipaddress import IPv4Network

import pytest

from bedplate.plan.door import ANYWHERE, Rule
from roles.hardened import filter as packet_filter
from roles.hardened.emergency import ENABLED, MARK, PATH, UNIT_PATH, ruleset
from roles.hardened.role import Hardened
from roles.template import text_of
from tests.support.hardened import fresh
from tests.support.recorded import Recorded

LAN = IPv4Network("192.168.40.0/22")
SSH = Rule("ssh-from-cellar", "SSH from the cellar", LAN, "tcp", 22)
OTHERS = (
    Rule("figures", "Figures", LAN, "tcp", 9100),
    Rule("ike-500", "IKE", ANYWHERE.block, "udp", 500),
    Rule("all-from-nodes", "All", IPv4Network("10.64.32.0/19")),
)


def test_of_the_plans_doors_those_of_ssh_alone_are_open() -> None:
    """An administrator comes in to mend the node, and nobody else to anything."""
    text = ruleset((SSH, *OTHERS))

    assert [line.strip() for line in text.splitlines() if "dport" in line and line.endswith("accept")] == [
        "udp sport 67 udp dport 68 accept",
        "ip saddr @from_tcp_22 tcp dport 22 accept",
    ]
    assert text.count("policy drop;") == 2
    assert "10.64.32.0/19" not in text


@pytest.mark.parametrize("rules", [(), OTHERS], ids=["no doors", "others"])
def test_a_plan_without_ssh_opens_nothing(rules: tuple[Rule, ...]) -> None:
    """Then the way in is the machine's console."""
    assert "dport 22" not in ruleset(rules)
    assert "set " not in ruleset(rules)


def test_it_never_takes_the_place_of_a_filter_that_stands() -> None:
    """Nftables refuses all of a text that creates what is there; the filter itself replaces whatever it finds."""
    text = ruleset((SSH,))

    assert "\ncreate table inet bedplate\n" in text
    assert "delete" not in text


def test_a_filter_and_the_emergency_are_told_apart() -> None:
    """The program on the node finds by a chain's name which of them is loaded."""
    assert f"chain {MARK} {{" in ruleset((SSH,))
    assert MARK not in packet_filter.ruleset((SSH, *OTHERS), frozenset())
    assert f"nft list chain inet bedplate {MARK} " in text_of("hardened/bedplate-trial")


def test_nobody_on_a_node_that_is_shut_speaks_to_file_servers() -> None:
    """They believe their clients, whatever became of the filter that keeps people from them."""
    assert "tcp dport 2049 meta skuid != { 0, 61184-65519 } drop" in ruleset(())


def test_every_boot_begins_with_it(system: Recorded) -> None:
    """It lies there, root's alone, and is enabled, before the first filter is ever tried."""
    played = fresh(system).play(Hardened(doors=(SSH,), duties=frozenset()), stages=["install", "configure"])

    assert played.disk.entries[PATH].mode == 600
    assert played.disk.entries[ENABLED].content == UNIT_PATH
    assert "Before=bedplate-filter.service network-pre.target" in played.written(UNIT_PATH)
