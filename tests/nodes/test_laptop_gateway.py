"""Gateways of laptops on booted machines: made by roles, keyed by a sync, dialled, audited, and broken."""

from collections.abc import Iterator
from time import time

import pytest

from tests.testlab.machines.defects import Rule, Where, planted
from tests.testlab.machines.gateways import GATE, HOME, LaptopGateways, open_device
from tests.testlab.machines.lab import FOUND, looked
from tests.testlab.network.netlab import LabProgram, until
from tests.testlab.run import told_commands

_DEFECTS = planted(Where.LAPTOPS)


@pytest.fixture(scope="module")
def client(gateways: LaptopGateways) -> Iterator[LabProgram]:
    """Give ada's client at the desk, connected to the site's gateway."""
    program = gateways.dial("laptop")
    yield program
    program.end()


@pytest.fixture(scope="module")
def found(gateways: LaptopGateways, tmp_path_factory: pytest.TempPathFactory) -> dict[Rule, str]:
    """Give what became of each rule of laptops' gateways, at the site's."""
    return looked(gateways, gateways.nodes[GATE], _DEFECTS, tmp_path_factory.mktemp("planted"))


def test_the_roles_make_a_gateway_and_then_change_nothing(gateways: LaptopGateways) -> None:
    """A second apply finds everything as it should be, on both machines."""
    again = gateways.apply()

    assert {name: (each["status"], bool(each["changed"])) for name, each in gateways.first.items()} == {
        GATE: ("done", True),
        HOME: ("done", True),
    }
    assert {name: (each["status"], each["changed"]) for name, each in again.items()} == {
        GATE: ("done", []),
        HOME: ("done", []),
    }


def test_keys_start_the_daemons_with_few_rights(client: LabProgram, gateways: LaptopGateways) -> None:
    """Nothing runs as root, nobody else reads a key, and systemd's own judge finds little that is exposed."""
    for node in gateways.nodes.values():
        users = set(node.run("ps -C openvpn -o user=").split())
        keys = node.run("stat -c '%a %U' /etc/bedplate/laptops/*.key").split("\n")
        judged = node.run("systemd-analyze security bedplate-laptops@udp --no-pager | tail -1")

        assert users == {"openvpn"}
        assert {each for each in keys if each} == {"400 openvpn"}
        assert float(judged.split(":")[1].split()[0]) <= 2.5, judged


def test_a_gateway_tells_who_is_connected(client: LabProgram, gateways: LaptopGateways) -> None:
    """To the operator over SSH, and to Prometheus by its timer's service."""
    gateways.nodes[GATE].run("systemctl start bedplate-vpn-metrics")
    metrics = gateways.nodes[GATE].run("cat /var/lib/prometheus/node-exporter/bedplate-vpn.prom")

    assert gateways.sessions == ["ada.laptop"]
    assert 'bedplate_laptops_sessions{transport="udp"} 1\n' in metrics


def test_a_gateway_serves_again_after_a_boot(gateways: LaptopGateways) -> None:
    """The packet filter is there before the network, and the daemons come up by themselves."""
    home = gateways.nodes[HOME]
    home.restart()
    open_device(home)

    until(lambda: home.run("systemctl is-active bedplate-laptops@udp || true").strip() == "active", 60, "it serves")

    assert "chain forward" in home.run("nft list table inet bedplate_laptops")


def test_systemd_syncs_each_day_for_who_is_not_root(gateways: LaptopGateways) -> None:
    """By the page's own command, in an account's own systemd; it is next due within a day and an hour."""
    (enable,) = (line for line in told_commands("vpn.md") if line.startswith("systemctl"))
    node = gateways.nodes[GATE]
    units = node.root / "home/ubuntu/.config/systemd/user"
    gateways.signed("timer", "--write", str(units))
    node.run("chown -R ubuntu: /home/ubuntu/.config")
    node.run("loginctl enable-linger ubuntu")

    done = node.ssh(enable)
    due = node.ssh('date +%s -d "$(systemctl --user show -P NextElapseUSecRealtime bedplate-vpn-lab.timer)"')
    status = node.ssh("systemctl --user status bedplate-vpn-lab --no-pager")

    assert done.returncode == 0, done.stderr
    assert 0 < int(due.stdout) - time() <= 25 * 3600
    assert "Keys and gateways of the fleet lab" in status.stdout
    node.ssh("systemctl --user disable --now bedplate-vpn-lab.timer; rm -r ~/.config/systemd")


@pytest.mark.parametrize("rule", _DEFECTS, ids="-".join)
def test_the_planted_defect_is_found(rule: Rule, found: dict[Rule, str]) -> None:
    """Each rule is kept on the gateway whose daemons run, and violated while its own defect stands there."""
    assert found[rule] == FOUND


@pytest.mark.parametrize("role", ["openvpn", "keeper"])
def test_the_audit_finds_nothing_amiss(
    role: str, found: dict[Rule, str], client: LabProgram, gateways: LaptopGateways
) -> None:
    """What the roles and a sync have made keeps every promise of theirs; nothing is left of the defects."""
    (told,) = gateways.operator.findings(GATE, "--role", role)["nodes"]

    assert {each["rule"]: each["outcome"] for each in told["verdicts"] if each["outcome"] != "kept"} == {}
    assert told["verdicts"]
