"""The packet filter's text."""

from ipaddress import IPv4Network

import pytest

from bedplate.plan.accounts import PEOPLE_IDS
from bedplate.plan.door import ANYWHERE, Rule
from bedplate.plan.node import Duty
from roles.hardened.filter import FORWARDERS, HOSTS, Door, doors_of, ruleset

LAN = IPv4Network("192.168.40.0/22")
SSH = Rule("ssh-from-cellar", "SSH from the cellar", LAN, "tcp", 22)
IKE = Rule("ike-500", "IKE", ANYWHERE.block, "udp", 500)
ESP = Rule("esp", "ESP", ANYWHERE.block, "esp")
ALL = Rule("all-from-nodes", "All", IPv4Network("10.64.32.0/19"))


def chain(text: str, name: str) -> list[str]:
    """Return the rules of a chain, without its first line."""
    _, _, rest = text.partition(f"chain {name} {{\n")
    return [line.strip() for line in rest.partition("\n\t}")[0].splitlines()]


@pytest.mark.parametrize(
    ("rule", "line"),
    [
        (SSH, "ip saddr @from_tcp_22 tcp dport 22 accept"),
        (IKE, "udp dport 500 accept"),
        (ESP, "meta l4proto esp accept"),
        (ALL, "ip saddr @from_all accept"),
    ],
    ids=["port-from-block", "port-from-anywhere", "protocol", "everything-from-block"],
)
def test_each_kind_of_door_is_said(rule: Rule, line: str) -> None:
    """A door names its sources, its protocol and its port, each only where the plan narrows it."""
    assert line in chain(ruleset((rule,), frozenset()), "input")


def test_what_no_door_lets_in_is_dropped() -> None:
    """Without doors nothing new comes in but pings, neighbours and addresses."""
    text = ruleset((), frozenset())

    accepts = [line for line in chain(text, "input") if line.endswith("accept") and not line.startswith("icmp")]
    assert accepts == ['iif "lo" accept', "ct state established,related accept", "udp sport 67 udp dport 68 accept"]
    assert "type filter hook input priority filter; policy drop;" in text
    assert "set " not in text


@pytest.mark.parametrize("duty", sorted(Duty))
def test_no_router_advertises_itself(duty: Duty) -> None:
    """Settings of the kernel reach neither interfaces from before them nor networkd, which listens by itself."""
    assert "nd-router-advert" not in ruleset((SSH,), frozenset({duty}))


def test_blocks_of_one_port_are_one_set() -> None:
    """A block within another is said once, and neighbours are joined."""
    halves = [Rule(name, name, block, "tcp", 22) for name, block in zip("ab", LAN.subnets(1), strict=True)]

    found = doors_of((*halves, SSH))

    assert found == (Door("from_tcp_22", "tcp", 22, (LAN,)),)


def test_everywhere_swallows_every_block() -> None:
    """A port that is open to all needs no set."""
    anywhere = Rule("any", "any", ANYWHERE.block, "tcp", 22)

    assert doors_of((SSH, anywhere)) == (Door("from_tcp_22", "tcp", 22, ()),)


def test_the_order_of_doors_changes_nothing() -> None:
    """The same doors in another order are the same text, so that an apply finds nothing to do."""
    rules = (SSH, IKE, ESP, ALL)

    assert ruleset(rules, frozenset()) == ruleset(rules[::-1], frozenset())


def test_only_the_fleet_s_own_table_is_replaced() -> None:
    """What Kubernetes, docker and the guards of gateways have loaded stays."""
    text = ruleset((SSH,), frozenset())

    assert "flush" not in text
    assert [line for line in text.splitlines() if line.startswith(("table", "delete"))] == [
        "table inet bedplate",
        "delete table inet bedplate",
        "table inet bedplate {",
    ]


@pytest.mark.parametrize("duty", sorted(Duty))
def test_packets_are_passed_on_only_by_whom_they_are_to_pass(duty: Duty) -> None:
    """Kubernetes and gateways forward by rules of their own; every other machine forwards nothing."""
    shut = "hook forward priority filter; policy drop;"

    assert (shut in ruleset((), frozenset({duty}))) is (duty not in FORWARDERS)


@pytest.mark.parametrize("duty", sorted(Duty))
def test_nobody_on_a_machine_speaks_to_file_servers_himself(duty: Duty) -> None:
    """Only root, as whom the kernel mounts, and stunnel's passing id; every other sender is told no at once."""
    rules = chain(ruleset((), frozenset({duty})), "output")

    refusal = "tcp dport 2049 meta skuid != { 0, 61184-65519 } counter reject with tcp reset"
    assert rules == ["type filter hook output priority filter; policy accept;", refusal]
    assert PEOPLE_IDS.stop <= 61184


@pytest.mark.parametrize("duty", sorted(Duty))
def test_pods_speak_to_no_file_server_but_another_pod(duty: Duty) -> None:
    """Their volumes are the machine's to mount; a gateway still leads what a region's nodes mount from another."""
    pods = Rule("all-from-pods", "All from pods", IPv4Network("10.244.0.0/16"))
    text = ruleset((pods,), frozenset({duty}))

    refusal = "ip daddr != 10.244.0.0/16 tcp dport 2049 counter reject with tcp reset"
    assert (refusal in text) is (duty in {Duty.WORKER, Duty.CONTROL})


@pytest.mark.parametrize("duty", sorted(set(Duty) - FORWARDERS))
def test_only_where_people_work_are_containers_led_out(duty: Duty) -> None:
    """A workbench leads on what its bridges send, and what it publishes to whom everything is open; others nothing."""
    rules = chain(ruleset((SSH, ALL), frozenset({duty})), "forward")[1:]

    bridges = [f'iifname "{name}" accept' for name in ("docker*", "br-*", "podman*", "cni-podman*")]
    published = "ct status dnat ip saddr @from_all accept"
    refused = "tcp dport 2049 counter reject with tcp reset"
    wanted = ["ct state established,related accept", published, refused, *bridges, "counter drop"]
    assert rules == (wanted if duty in HOSTS else [])
