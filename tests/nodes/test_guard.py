"""The role `guard` on a real machine: a site's gateway is under guard before it has a tunnel."""

from base64 import b64encode
from dataclasses import replace
from shlex import quote
from time import sleep

import pytest

from tests.support.lab_pair import ATTIC, CELLAR, one_key
from tests.support.netlab_program import until
from tests.support.site_side import cellar
from tests.support.stand.carried import laid
from tests.support.stand.lab import recorded_lab
from tests.support.stand.node import Node
from tests.support.stand.operator import Operator
from tests.support.stand.stand import Stand
from vpn.sites.engine import PROBE, Engine, engine_told
from vpn.sites.files import files_of
from vpn.sites.pair import joined

pytestmark = pytest.mark.nightly

NAME = "gate.cellar"
ROLES = ("--role", "guard", "--role", "keeper")

SITE = cellar(Engine.DAEMON)


@pytest.fixture(scope="module")
def operator(stand: Stand) -> Operator:
    """Give the operator of the lab."""
    return Operator(stand, recorded_lab(stand.folder))


@pytest.fixture(scope="module")
def node(stand: Stand, operator: Operator) -> Node:
    """Give the site's gateway, with the role in force."""
    booted = stand.boot(NAME, "192.168.40.1")
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


def test_a_charon_that_is_killed_comes_back_and_is_looked_after(node: Node) -> None:
    """By the units that lie on a gateway: the daemon starts, is started again when it dies, and is looked after."""
    assert engine_told(node.run(f"sudo sh -c {quote(PROBE)}")) in Engine
    for file in files_of(joined(CELLAR, (ATTIC,), one_key(), Engine.DAEMON)):
        text = b64encode(file.text.encode()).decode()
        node.run(f"sudo mkdir -p {file.path.parent}; echo {text} | base64 -d | sudo tee {file.path} >/dev/null")
        node.run(f"sudo chmod {file.mode:o} {file.path}")
    node.run("sudo systemctl daemon-reload; sudo systemctl start bedplate-ipsec-attic.service")
    first = node.run("systemctl show -P MainPID bedplate-ipsec-attic.service")

    node.run("sudo systemctl kill -s KILL bedplate-ipsec-attic.service")
    sleep(6)

    units = "bedplate-ipsec-attic.service bedplate-ipsec-attic-dial.service"
    assert node.run(f"systemctl is-active {units}").split() == ["active", "active"]
    assert node.run("systemctl show -P MainPID bedplate-ipsec-attic.service") != first
    node.run("sudo systemctl stop bedplate-ipsec-attic.service")
    node.run("sudo rm -r /etc/bedplate/ipsec /etc/systemd/system/bedplate-ipsec-*; sudo systemctl daemon-reload")


def test_tunnels_are_laid_once_and_stay(node: Node) -> None:
    """Sent over SSH: charons, BGP and the handover run; sent again it changes nothing; a boot brings all of it back."""
    first = laid(node, SITE)
    second = laid(node, SITE)
    node.restart()
    names = [charon.name for charon in SITE.charons]
    node.run(f"systemctl is-active --wait {_units(names)} || sleep 10")

    assert "/etc/frr/frr.conf" in first["written"]
    assert not any(second.values())
    assert set(node.run(f"systemctl is-active {_units(names)} frr bedplate-handover").split()) == {"active"}
    assert node.run("nft list table inet bedplate_handover").count("redirect") == 2 * len(names)
    assert node.run("vtysh -c 'show bgp neighbors'").count("BGP neighbor is") == len(names)
    assert node.run("find /etc/bedplate/ipsec -name swanctl.conf ! -perm 600") == ""


def test_prometheus_is_told_of_every_tunnel_of_the_gateways_files(node: Node) -> None:
    """By the unit, with its own rights: of daemons that answer, and of one that was ended, whose tunnel is down."""
    laid(node, SITE)
    gone, *others = (charon.name for charon in SITE.charons)
    until(lambda: _listen(node, gone, *others), 30, "a charon does not listen")
    node.run(f"systemctl stop bedplate-ipsec-{gone}.service; systemctl start bedplate-vpn-metrics.service")
    told = node.run("cat /var/lib/prometheus/node-exporter/bedplate-vpn.prom").splitlines()
    node.run(f"systemctl start bedplate-ipsec-{gone}.service")

    assert f'bedplate_tunnels_answering{{charon="{gone}"}} 0' in told
    assert {f'bedplate_tunnels_answering{{charon="{name}"}} 1' for name in others} <= set(told)
    assert {f'bedplate_tunnel_up{{tunnel="{each.name}"}} 0' for each in SITE.tunnels} <= set(told)
    assert {f'bedplate_tunnel_bgp_up{{tunnel="{each.name}"}} 0' for each in SITE.tunnels} <= set(told)


def _listen(node: Node, *charons: str) -> bool:
    there = " && ".join(f"test -S /run/bedplate-ipsec/{charon}.vici" for charon in charons)
    return node.run(f"{there} && echo there || true") != ""


def test_operator_commands_show_the_state_of_a_gateway(node: Node) -> None:
    """Security associations, BGP peers, the counters of the guard and the log of each charon are visible."""
    laid(node, SITE)
    charon = SITE.charons[0].name
    until(lambda: _listen(node, charon), 30, "it does not listen")

    node.run(f"swanctl --list-sas --uri unix:///run/bedplate-ipsec/{charon}.vici")
    bgp = node.run("vtysh -c 'show bgp summary'")
    rules = node.run("nft list table inet bedplate_guard")
    journal = node.run("journalctl -u 'bedplate-ipsec-*' --no-pager")

    assert bgp.count("\n169.254.") == len(SITE.charons), bgp
    assert "counter packets" in rules
    assert f"Started bedplate-ipsec-{charon}" in journal


def test_a_tunnel_that_leaves_the_plan_leaves_the_gateway(node: Node) -> None:
    """Its charon, its peer in BGP and its handover go; the other charons are the processes that they were."""
    laid(node, SITE)
    gone, *others = SITE.charons
    before = _pids(node, [each.name for each in others])

    done = laid(node, replace(SITE, tunnels=SITE.tunnels[1:]))

    assert f"/etc/systemd/system/bedplate-ipsec-{gone.name}.service" in done["removed"]
    assert _pids(node, [each.name for each in others]) == before
    assert node.run(f"systemctl is-active bedplate-ipsec-{gone.name} || true").strip() == "inactive"
    assert node.run("vtysh -c 'show bgp neighbors'").count("BGP neighbor is") == len(others)


def test_a_gateway_with_its_tunnels_keeps_every_promise(node: Node, operator: Operator) -> None:
    """What a role and a shipment made is what the judge of machines looks for."""
    laid(node, SITE)

    assert set(_outcomes(operator).values()) == {"kept"}


def test_each_fault_breaks_its_own_promise(node: Node, operator: Operator) -> None:
    """Seven ways in which a gateway may be wrong, each seen by the rule that is about it."""
    laid(node, SITE)
    charon = SITE.charons[0].name
    # FRR first: whenever it starts, it has packets led on again.
    node.run(
        "systemctl disable -q --now frr; nft delete table inet bedplate_guard;ip route flush proto 98;"
        "sysctl -qw net.ipv4.conf.all.rp_filter=1 net.ipv4.ip_forward=0;"
        f"systemctl stop bedplate-ipsec-{charon}; chmod 640 /etc/bedplate/ipsec/{charon}/swanctl.conf"
    )

    found = _outcomes(operator)

    assert {name for name, outcome in found.items() if outcome == "violated"} == {
        "the-guard-is-the-plans",
        "what-no-tunnel-takes-is-refused-at-once",
        "answers-may-come-by-the-other-tunnel",
        "packets-are-led-on",
        "the-guard-and-bgp-run-at-each-boot",
        "every-tunnel-of-the-plan-is-served",
        "keys-of-tunnels-are-roots-alone",
    }


def _outcomes(operator: Operator) -> dict[str, str]:
    (judged,) = operator.findings(NAME, "--role", "guard")["nodes"]
    return {each["rule"]: each["outcome"] for each in judged["verdicts"]}


def _units(names: list[str]) -> str:
    return " ".join(f"bedplate-ipsec-{name}.service bedplate-ipsec-{name}-dial.service" for name in names)


def _pids(node: Node, names: list[str]) -> list[str]:
    return [node.run(f"systemctl show -P MainPID bedplate-ipsec-{name}.service") for name in names]
