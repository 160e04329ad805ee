"""The role `guard` on a booted site gateway, before and after its tunnels are pushed."""

from dataclasses import replace
from time import sleep

import pytest

from tests.testlab.fleets.variants import cellar_gateway
from tests.testlab.machines.lab import substitute_ipsec, write_recorded_fleet
from tests.testlab.machines.node_lab import Node, NodeLab
from tests.testlab.machines.operator import Operator, push_tunnels
from tests.testlab.network.netlab import until
from vpn.sites.files import DIAL, SERVICE

pytestmark = pytest.mark.nightly

NAME = "gate.cellar"
# Without the settings of baseline networkd deletes the routes of the guard.
ROLES = ("--role", "baseline", "--role", "guard", "--role", "vpnagent")
SITE = cellar_gateway()
_UNITS = f"{SERVICE}.service {DIAL}.service"


@pytest.fixture(scope="module")
def operator(node_lab: NodeLab) -> Operator:
    """Return the operator of the lab."""
    return Operator(node_lab, write_recorded_fleet(node_lab.folder))


@pytest.fixture(scope="module")
def node(node_lab: NodeLab, operator: Operator) -> Node:
    """Return the site's gateway, with the roles applied."""
    booted = node_lab.boot(NAME, "192.168.40.1")
    substitute_ipsec(booted)
    assert operator.changes(NAME, *ROLES)[NAME]
    return booted


def test_a_second_apply_changes_nothing(node: Node, operator: Operator) -> None:
    """A second apply changes nothing."""
    assert operator.changes(NAME, *ROLES) == {NAME: []}


def test_guard_is_loaded_and_strongswan_is_stopped(node: Node) -> None:
    """The guard covers all remote blocks, the gateway forwards packets, and the distribution's charon is off."""
    rules = node.run("sudo nft list table inet bedplate_guard")

    assert "10.64.0.0/15" in rules
    assert node.run("sysctl -n net.ipv4.ip_forward").strip() == "1"
    assert node.run("systemctl is-enabled bedplate-guard.service").strip() == "enabled"
    assert node.run("systemctl is-active strongswan.service || true").strip() == "inactive"
    assert ":500 " not in node.run("ss -lun")


def test_tunnels_are_pushed_once_and_persist(node: Node) -> None:
    """A push over SSH starts charon and BGP, a second push changes nothing, and both run after a reboot."""
    first = push_tunnels(node, SITE)
    second = push_tunnels(node, SITE)
    node.restart()
    node.run(f"systemctl is-active --wait {_UNITS} || sleep 10")

    assert "/etc/frr/frr.conf" in first["written"]
    assert not any(second.values())
    assert set(node.run(f"systemctl is-active {_UNITS} frr").split()) == {"active"}
    assert node.run("vtysh -c 'show bgp neighbors'").count("BGP neighbor is") == len(SITE.tunnels)
    assert node.run("find /etc/bedplate/ipsec -name swanctl.conf ! -perm 600") == ""


def test_killed_charon_restarts(node: Node) -> None:
    """Systemd restarts a killed charon, and its dialer keeps running."""
    push_tunnels(node, SITE)
    first = _pid(node)

    node.run(f"systemctl kill -s KILL {SERVICE}")
    sleep(6)

    assert node.run(f"systemctl is-active {_UNITS}").split() == ["active", "active"]
    assert _pid(node) != first


def test_metrics_cover_all_tunnels(node: Node) -> None:
    """The metrics contain each tunnel of the gateway, also while charon is stopped."""
    push_tunnels(node, SITE)
    until(lambda: _listens(node), 30, "charon does not listen")
    answering = _metrics(node)
    node.run(f"systemctl stop {SERVICE}")
    silent = _metrics(node)
    node.run(f"systemctl start {_UNITS}")

    for metrics, number in ((answering, 1), (silent, 0)):
        assert f'bedplate_tunnels_answering{{charon="tunnels"}} {number}' in metrics
        for name in ("bedplate_tunnel_up", "bedplate_tunnel_bgp_up"):
            assert {f'{name}{{tunnel="{tunnel.name}"}} 0' for tunnel in SITE.tunnels} <= set(metrics)


def _metrics(node: Node) -> list[str]:
    node.run("systemctl start bedplate-vpn-metrics.service")
    return node.run("cat /var/lib/prometheus/node-exporter/bedplate-vpn.prom").splitlines()


def _listens(node: Node) -> bool:
    return node.run("test -S /run/bedplate-ipsec/tunnels.vici && echo there || true") != ""


def test_operator_commands_show_the_state_of_a_gateway(node: Node) -> None:
    """Security associations, BGP peers, the counters of the guard and the log of each charon are visible."""
    push_tunnels(node, SITE)
    until(lambda: _listens(node), 30, "charon does not listen")

    node.run("swanctl --list-sas --uri unix:///run/bedplate-ipsec/tunnels.vici")
    bgp = node.run("vtysh -c 'show bgp summary'")
    rules = node.run("nft list table inet bedplate_guard")
    journal = node.run("journalctl -u 'bedplate-ipsec-*' --no-pager")

    assert bgp.count("\n169.254.") == len(SITE.tunnels), bgp
    assert "counter packets" in rules
    assert "Started bedplate-ipsec-tunnels" in journal


def test_removed_tunnel_is_deleted(node: Node) -> None:
    """A tunnel that is removed from the plan loses its interface and its BGP peer."""
    push_tunnels(node, SITE)
    _, *others = SITE.tunnels

    push_tunnels(node, replace(SITE, tunnels=SITE.tunnels[1:]))

    devices = {line.split()[0] for line in node.run("ip -brief link show type bridge").splitlines()}
    assert devices == {tunnel.device for tunnel in others}
    assert node.run("vtysh -c 'show bgp neighbors'").count("BGP neighbor is") == len(others)


def test_gateway_with_tunnels_passes_the_audit(node: Node, operator: Operator) -> None:
    """After the role and a push of the tunnels, the audit finds no failure."""
    push_tunnels(node, SITE)
    outcomes = _outcomes(operator)

    assert outcomes
    assert {name: words for name, (outcome, words) in outcomes.items() if outcome != "passed"} == {}


def test_each_fault_violates_its_rule(node: Node, operator: Operator) -> None:
    """Seven faults of a gateway each violate the rule about them, and no other."""
    push_tunnels(node, SITE)
    # FRR first: it turns IP forwarding on when it starts.
    node.run(
        "systemctl disable -q --now frr; nft delete table inet bedplate_guard;ip route flush proto 98;"
        "sysctl -qw net.ipv4.conf.all.rp_filter=1 net.ipv4.ip_forward=0;"
        f"systemctl stop {SERVICE}; chmod 640 /etc/bedplate/ipsec/tunnels/swanctl.conf"
    )

    outcomes = _outcomes(operator)

    assert {name for name, (outcome, _) in outcomes.items() if outcome == "failed"} == {
        "guard-matches-the-plan",
        "traffic-without-a-tunnel-fails-at-once",
        "reverse-path-filter-is-loose",
        "ip-forwarding-is-on",
        "guard-and-bgp-start-at-boot",
        "planned-tunnels-are-up",
        "tunnel-keys-are-private",
    }


def _outcomes(operator: Operator) -> dict[str, tuple[str, str]]:
    """Return the outcome of each rule, and its words."""
    (node,) = operator.findings(NAME, "--role", "guard")["nodes"]
    return {verdict["rule"]: (verdict["outcome"], verdict["words"]) for verdict in node["verdicts"]}


def _pid(node: Node) -> str:
    return node.run(f"systemctl show -P MainPID {SERVICE}")
