"""Laptop gateways on booted nodes: applied, synced, connected, audited, and with seeded defects."""

from collections.abc import Iterator
from pathlib import Path
from time import time

import pytest

from tests.testlab.machines.defects import Rule, Where, defects_at
from tests.testlab.machines.gateways import GATE, HOME, LaptopGateways, open_device
from tests.testlab.machines.lab import FAILED, check_defects
from tests.testlab.machines.whole import Whole, config_of_ada, replace_machine, status, whole_machine
from tests.testlab.machines.whole_kinds import KINDS
from tests.testlab.network.netlab import LabProgram, until
from tests.testlab.run import documented_commands

_DEFECTS = defects_at(Where.LAPTOPS)


@pytest.fixture(scope="module")
def client(gateways: LaptopGateways) -> Iterator[LabProgram]:
    """Yield ada's client on the workstation, connected to the site's gateway."""
    program = gateways.dial("laptop")
    yield program
    program.end()


@pytest.fixture(scope="module")
def rule_outcomes(gateways: LaptopGateways, tmp_path_factory: pytest.TempPathFactory) -> dict[Rule, str]:
    """Return the outcome of each rule of laptop gateways, with its defect."""
    folder = tmp_path_factory.mktemp("defects")
    outcomes: dict[Rule, str] = {}
    for name, node in gateways.nodes.items():
        seeded = {rule: defect for rule, defect in _DEFECTS.items() if defect.on == name}
        outcomes |= check_defects(gateways, node, seeded, folder)
    return outcomes


def test_second_apply_changes_nothing(gateways: LaptopGateways) -> None:
    """The first apply configures both gateways, and the second changes nothing."""
    again = gateways.apply()

    assert {name: (result["status"], bool(result["changed"])) for name, result in gateways.first.items()} == {
        GATE: ("done", True),
        HOME: ("done", True),
    }
    assert {name: (result["status"], result["changed"]) for name, result in again.items()} == {
        GATE: ("done", []),
        HOME: ("done", []),
    }


def test_daemons_run_with_few_privileges(client: LabProgram, gateways: LaptopGateways) -> None:
    """OpenVPN does not run as root, only it can read its keys, and systemd rates its exposure at 2.5 or less."""
    for node in gateways.nodes.values():
        users = set(node.run("ps -C openvpn -o user=").split())
        keys = node.run("stat -c '%a %U' /etc/bedplate/laptops/*.key").split("\n")
        exposure = node.run("systemd-analyze security bedplate-laptops@udp --no-pager | tail -1")

        assert users == {"openvpn"}
        assert set(filter(None, keys)) == {"400 openvpn"}
        assert float(exposure.split(":")[1].split()[0]) <= 2.5, exposure


def test_gateway_reports_connected_laptops(client: LabProgram, gateways: LaptopGateways) -> None:
    """A gateway reports connected laptops to the operator and to Prometheus."""
    gateways.nodes[GATE].run("systemctl start bedplate-vpn-metrics")
    metrics = gateways.nodes[GATE].run("cat /var/lib/prometheus/node-exporter/bedplate-vpn.prom")

    assert gateways.sessions == ["ada.laptop"]
    assert 'bedplate_laptops_sessions{transport="udp"} 1\n' in metrics


def test_gateway_runs_after_a_reboot(gateways: LaptopGateways) -> None:
    """After a reboot, the packet filter is loaded and the daemons run."""
    home = gateways.nodes[HOME]
    home.restart()
    open_device(home)

    until(
        lambda: home.run("systemctl is-active bedplate-laptops@udp || true").strip() == "active",
        60,
        "OpenVPN does not run",
    )

    assert "chain forward" in home.run("nft list table inet bedplate_laptops")


def test_user_timer_syncs_daily(gateways: LaptopGateways) -> None:
    """The documented systemd timer of an unprivileged user runs within 25 hours."""
    (enable,) = (line for line in documented_commands("vpn.md") if line.startswith("systemctl"))
    node = gateways.nodes[GATE]
    units = node.root / "home/ubuntu/.config/systemd/user"
    gateways.local_vpn("timer", "--write", str(units))
    node.run("chown -R ubuntu: /home/ubuntu/.config")
    node.run("loginctl enable-linger ubuntu")

    done = node.ssh(enable)
    due = node.ssh('date +%s -d "$(systemctl --user show -P NextElapseUSecRealtime bedplate-vpn-lab.timer)"')
    status = node.ssh("systemctl --user status bedplate-vpn-lab --no-pager")

    assert done.returncode == 0, done.stderr
    assert 0 < int(due.stdout) - time() <= 25 * 3600
    assert "bedplate vpn sync for the fleet lab" in status.stdout
    node.ssh("systemctl --user disable --now bedplate-vpn-lab.timer; rm -r ~/.config/systemd")


@pytest.mark.parametrize("rule", _DEFECTS, ids="-".join)
def test_rule_detects_its_defect(rule: Rule, rule_outcomes: dict[Rule, str]) -> None:
    """The rule passes on a gateway with running daemons, and fails with its defect."""
    assert rule_outcomes[rule] == FAILED


@pytest.mark.parametrize("role", ["openvpn", "vpnagent"])
def test_audit_finds_no_violation(
    role: str, rule_outcomes: dict[Rule, str], client: LabProgram, gateways: LaptopGateways
) -> None:
    """After the roles and a sync, and after all defects are undone, the audit finds no failure."""
    (node,) = gateways.operator.findings(GATE, "--role", role)["nodes"]

    outcomes = {verdict["rule"]: verdict["outcome"] for verdict in node["verdicts"]}
    assert outcomes
    assert {rule: outcome for rule, outcome in outcomes.items() if outcome != "passed"} == {}


_KEPT = (
    "cd /etc/bedplate/laptops; sha256sum *.crt *.key crl.pem book.version udp.laptops/* /etc/ssh/ssh_host_ed25519_key*"
)


def _kept(machine: Whole) -> str:
    return machine.node.run(_KEPT)


@pytest.mark.nightly
def test_a_replaced_gateway_serves_without_an_operator(tmp_path: Path) -> None:
    """A new machine with the volume of the old one has its keys, lists and host keys, and laptops keep their profiles.

    Before `vpn up` it says what it waits for and is not abandoned. A list that is sent later reaches the new machine.
    """
    (kind,) = (kind for kind in KINDS if kind.name == "laptop-gateway")
    with whole_machine(kind, tmp_path) as machine:
        assert machine.laptop
        assert machine.run
        assert "OpenVPN waits: its volume has no keys: run `bedplate vpn up`" in status(machine.node, "run")["sentence"]
        machine.laptop.connect()
        kept, profile = _kept(machine), (machine.laptop.host.folder / "ada.ovpn").read_bytes()

        replace_machine(machine)

        assert _kept(machine) == kept
        assert "OpenVPN waits" not in status(machine.node, "run")["sentence"]
        assert machine.run.place.reports == [("lab-laptops", "ready", "CONTINUE")] * 2
        machine.laptop.connect()
        assert (machine.laptop.host.folder / "ada.ovpn").read_bytes() == profile
        assert machine.laptop.fetch() == "page"
        until(lambda: _serving(machine) == {1.0}, 150, "the alarm is not told that the gateway serves")

        machine.laptop.operator.local_vpn("add", "ada", "--device", "phone")
        options = (str(machine.fleet.fleet), "--ssh-config", str(config_of_ada(machine)))
        done = machine.laptop.operator.operator.bedplate("vpn", "sync", *options)
        assert "us-west-2: updated" in done.stdout, done.stdout + done.stderr
        assert machine.node.run("ls /etc/bedplate/laptops/udp.laptops").split() == ["ada.laptop", "ada.phone"]


def _serving(machine: Whole) -> set[float]:
    """Return the values that the gateway has sent since its replacement."""
    assert machine.run
    calls = [call for call in machine.run.place.endpoint.requests if call["action"] == "PutMetricData"]
    return {float(call["MetricData.member.1.Value"]) for call in calls[-1:]}
