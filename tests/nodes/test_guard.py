"""The role `guard` on a real machine: a site's gateway is under guard before it has a tunnel."""

from dataclasses import replace
from time import sleep

import pytest

from tests.testlab.fleets.variants import cellar
from tests.testlab.machines.lab import recorded_lab, substitute_ipsec
from tests.testlab.machines.operator import Operator, laid
from tests.testlab.machines.stand import Node, Stand
from tests.testlab.network.netlab import until
from vpn.sites.files import DIAL, SERVICE

pytestmark = pytest.mark.nightly

NAME = "gate.cellar"
ROLES = ("--role", "guard", "--role", "keeper")
SITE = cellar()
_UNITS = f"{SERVICE}.service {DIAL}.service"


@pytest.fixture(scope="module")
def operator(stand: Stand) -> Operator:
    """Give the operator of the lab."""
    return Operator(stand, recorded_lab(stand.folder))


@pytest.fixture(scope="module")
def node(stand: Stand, operator: Operator) -> Node:
    """Give the site's gateway, with the role in force."""
    booted = stand.boot(NAME, "192.168.40.1")
    substitute_ipsec(booted)
    assert operator.changes(NAME, *ROLES)[NAME]
    return booted


def test_a_second_apply_changes_nothing(node: Node, operator: Operator) -> None:
    """What is in force is found to be so on a real machine."""
    assert operator.changes(NAME, *ROLES) == {NAME: []}


def test_the_guard_stands_and_no_other_charon_runs(node: Node) -> None:
    """The kernel holds the rules for every block elsewhere, packets pass, and the ports of IKE are free."""
    rules = node.run("sudo nft list table inet bedplate_guard")

    assert "10.64.0.0/15" in rules
    assert node.run("sysctl -n net.ipv4.ip_forward").strip() == "1"
    assert node.run("systemctl is-enabled bedplate-guard.service").strip() == "enabled"
    assert node.run("systemctl is-active strongswan.service || true").strip() == "inactive"
    assert ":500 " not in node.run("ss -lun")


def test_tunnels_are_laid_once_and_stay(node: Node) -> None:
    """Sent over SSH: charon and BGP run; sent again it changes nothing; a boot brings all of it back."""
    first = laid(node, SITE)
    second = laid(node, SITE)
    node.restart()
    node.run(f"systemctl is-active --wait {_UNITS} || sleep 10")

    assert "/etc/frr/frr.conf" in first["written"]
    assert not any(second.values())
    assert set(node.run(f"systemctl is-active {_UNITS} frr").split()) == {"active"}
    assert node.run("vtysh -c 'show bgp neighbors'").count("BGP neighbor is") == len(SITE.tunnels)
    assert node.run("find /etc/bedplate/ipsec -name swanctl.conf ! -perm 600") == ""


def test_a_charon_that_is_killed_comes_back_and_is_looked_after(node: Node) -> None:
    """By its units: systemd restarts the daemon, and the service that dials runs beside it."""
    laid(node, SITE)
    first = _pid(node)

    node.run(f"systemctl kill -s KILL {SERVICE}")
    sleep(6)

    assert node.run(f"systemctl is-active {_UNITS}").split() == ["active", "active"]
    assert _pid(node) != first


def test_prometheus_is_told_of_every_tunnel_of_the_gateways_files(node: Node) -> None:
    """By the unit, with its own rights: while charon answers, and while it does not, all tunnels are down."""
    laid(node, SITE)
    until(lambda: _listens(node), 30, "charon does not listen")
    answering = _metrics(node)
    node.run(f"systemctl stop {SERVICE}")
    silent = _metrics(node)
    node.run(f"systemctl start {_UNITS}")

    for told, number in ((answering, 1), (silent, 0)):
        assert f'bedplate_tunnels_answering{{charon="tunnels"}} {number}' in told
        assert {f'bedplate_tunnel_up{{tunnel="{each.name}"}} 0' for each in SITE.tunnels} <= set(told)
        assert {f'bedplate_tunnel_bgp_up{{tunnel="{each.name}"}} 0' for each in SITE.tunnels} <= set(told)


def _metrics(node: Node) -> list[str]:
    node.run("systemctl start bedplate-vpn-metrics.service")
    return node.run("cat /var/lib/prometheus/node-exporter/bedplate-vpn.prom").splitlines()


def _listens(node: Node) -> bool:
    return node.run("test -S /run/bedplate-ipsec/tunnels.vici && echo there || true") != ""


def test_operator_commands_show_the_state_of_a_gateway(node: Node) -> None:
    """Security associations, BGP peers, the counters of the guard and the log of each charon are visible."""
    laid(node, SITE)
    until(lambda: _listens(node), 30, "charon does not listen")

    node.run("swanctl --list-sas --uri unix:///run/bedplate-ipsec/tunnels.vici")
    bgp = node.run("vtysh -c 'show bgp summary'")
    rules = node.run("nft list table inet bedplate_guard")
    journal = node.run("journalctl -u 'bedplate-ipsec-*' --no-pager")

    assert bgp.count("\n169.254.") == len(SITE.tunnels), bgp
    assert "counter packets" in rules
    assert "Started bedplate-ipsec-tunnels" in journal


def test_a_tunnel_that_leaves_the_plan_leaves_the_gateway(node: Node) -> None:
    """Its device and its peer in BGP are deleted, and charon is restarted without it."""
    laid(node, SITE)
    _, *others = SITE.tunnels

    laid(node, replace(SITE, tunnels=SITE.tunnels[1:]))

    devices = {line.split()[0] for line in node.run("ip -brief link show type bridge").splitlines()}
    assert devices == {each.device for each in others}
    assert node.run("vtysh -c 'show bgp neighbors'").count("BGP neighbor is") == len(others)


def test_a_gateway_with_its_tunnels_keeps_every_promise(node: Node, operator: Operator) -> None:
    """What a role and a shipment made is what the judge of machines looks for."""
    laid(node, SITE)

    assert set(_outcomes(operator).values()) == {"kept"}


def test_each_fault_breaks_its_own_promise(node: Node, operator: Operator) -> None:
    """Seven ways in which a gateway may be wrong, each seen by the rule that is about it."""
    laid(node, SITE)
    # FRR first: whenever it starts, it has packets led on again.
    node.run(
        "systemctl disable -q --now frr; nft delete table inet bedplate_guard;ip route flush proto 98;"
        "sysctl -qw net.ipv4.conf.all.rp_filter=1 net.ipv4.ip_forward=0;"
        f"systemctl stop {SERVICE}; chmod 640 /etc/bedplate/ipsec/tunnels/swanctl.conf"
    )

    found = _outcomes(operator)

    assert {name for name, outcome in found.items() if outcome == "violated"} == {
        "guard-matches-the-plan",
        "traffic-without-a-tunnel-fails-at-once",
        "reverse-path-filter-is-loose",
        "ip-forwarding-is-on",
        "guard-and-bgp-start-at-boot",
        "planned-tunnels-are-up",
        "tunnel-keys-are-private",
    }


def _outcomes(operator: Operator) -> dict[str, str]:
    (judged,) = operator.findings(NAME, "--role", "guard")["nodes"]
    return {each["rule"]: each["outcome"] for each in judged["verdicts"]}


def _pid(node: Node) -> str:
    return node.run(f"systemctl show -P MainPID {SERVICE}")
