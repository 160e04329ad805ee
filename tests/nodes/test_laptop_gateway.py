"""Gateways of laptops on booted machines: made by roles, keyed by a sync, dialled, and told of who was revoked."""

import json
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.declared import EXAMPLES
from tests.support.netlab_program import LabProgram, until
from tests.support.page import told_commands
from tests.support.stand.node import Node
from tests.support.stand.operator import Operator
from tests.support.stand.stand import Stand

GATE, HOME = "gate.cellar", "laptops.us-west-2"
GATE_PUBLIC = "8.20.30.40"
GIVEN = ("--address", "us-west-2=52.1.2.3", "--resolver", "us-west-2=10.64.32.5,10.64.64.7")
ROLES = ("--role", "keeper", "--role", "openvpn")


@pytest.fixture(scope="module")
def gateways(stand: Stand) -> tuple[Node, ...]:
    """Give both gateways of the lab as fresh machines.

    A container has no udev: what that opens to all, the device by which tunnels are made, is opened by hand.
    """
    nodes = stand.boot(GATE, "192.168.40.1"), stand.boot(HOME, "10.64.0.4")
    for node in nodes:
        node.run("chmod 666 /dev/net/tun")
    nodes[0].run(f"ip address add {GATE_PUBLIC}/32 dev lo")
    stand.desk.host.run("ip", "route", "add", f"{GATE_PUBLIC}/32", "dev", "n1")
    return nodes


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give the lab's file in a folder of its own."""
    return Path(shutil.copy(EXAMPLES / "lab.yaml", tmp_path_factory.mktemp("fleet") / "fleet.yaml"))


@pytest.fixture(scope="module")
def operator(stand: Stand, fleet: Path) -> Operator:
    """Give the operator, who has recorded addresses, an authority, and a certificate for ada."""
    operator = Operator(stand, fleet)
    for words in (("record", str(fleet), *GIVEN), ("init", str(fleet)), ("add", "ada", str(fleet))):
        done = operator.bedplate("vpn", *words)
        assert done.returncode == 0, done.stderr
    return operator


@pytest.fixture(scope="module")
def applied(gateways: tuple[Node, ...], operator: Operator, stand: Stand, fleet: Path) -> dict[str, Any]:
    """Give what the page's own command makes of both machines, by these two roles."""
    return _applied(operator, stand, fleet)


@pytest.fixture(scope="module")
def client(applied: dict[str, Any], operator: Operator, stand: Stand, fleet: Path) -> Iterator[LabProgram]:
    """Give ada's client at the desk, connected to the site's gateway; the desk keeps its own routes."""
    assert _vpn(operator, stand, fleet, "sync").returncode == 0
    profile = fleet.with_name("ada.ovpn")
    profile.write_text(operator.bedplate("vpn", "show", "ada", str(fleet)).stdout)
    program = stand.desk.host.start(
        "openvpn", "--config", str(profile), "--route-noexec", "--connect-timeout", "2", log="ada.log"
    )
    until(lambda: "Initialization Sequence Completed" in program.told, 60, "ada gets in")
    yield program
    program.end()


def _applied(operator: Operator, stand: Stand, fleet: Path) -> dict[str, Any]:
    (command,) = (line for line in told_commands("vpn.md") if line.startswith("bedplate node apply"))
    way = ("--ssh-config", str(stand.ssh_config), "--user", "ubuntu", "--fleet", str(fleet))
    done = operator.bedplate(*shlex.split(command)[1:], *ROLES, *way, "--json")
    assert done.stdout, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)["nodes"]
    return told


def _vpn(operator: Operator, stand: Stand, fleet: Path, *words: str) -> Any:  # noqa: ANN401  a process that has ended
    return operator.bedplate("vpn", *words, str(fleet), "--ssh-config", str(stand.ssh_config))


def _sessions(operator: Operator, stand: Stand, fleet: Path) -> list[str]:
    told = json.loads(_vpn(operator, stand, fleet, "status", "--json").stdout)
    served = told["gateways"][GATE]["laptops"]
    return [each["name"] for sessions in served.values() for each in sessions]


def test_the_roles_make_a_gateway_and_then_change_nothing(
    applied: dict[str, Any], operator: Operator, stand: Stand, fleet: Path
) -> None:
    """A second apply finds everything as it should be, on both machines."""
    again = _applied(operator, stand, fleet)

    assert {name: (each["status"], bool(each["changed"])) for name, each in applied.items()} == {
        GATE: ("done", True),
        HOME: ("done", True),
    }
    assert {name: (each["status"], each["changed"]) for name, each in again.items()} == {
        GATE: ("done", []),
        HOME: ("done", []),
    }


def test_keys_start_the_daemons_with_few_rights(client: LabProgram, gateways: tuple[Node, ...]) -> None:
    """Nothing runs as root, nobody else reads a key, and systemd's own judge finds little that is exposed."""
    for node in gateways:
        users = set(node.run("ps -C openvpn -o user=").split())
        keys = node.run("stat -c '%a %U' /etc/bedplate/laptops/*.key").split("\n")
        judged = node.run("systemd-analyze security bedplate-laptops@udp --no-pager | tail -1")

        assert users == {"openvpn"}
        assert {each for each in keys if each} == {"400 openvpn"}
        assert float(judged.split(":")[1].split()[0]) <= 2.5, judged


def test_a_gateway_tells_who_is_connected(
    client: LabProgram, gateways: tuple[Node, ...], operator: Operator, stand: Stand, fleet: Path
) -> None:
    """To the operator over SSH, and to Prometheus by its timer's service."""
    gateways[0].run("systemctl start bedplate-vpn-metrics")
    metrics = gateways[0].run("cat /var/lib/prometheus/node-exporter/bedplate-vpn.prom")

    assert _sessions(operator, stand, fleet) == ["ada.laptop"]
    assert 'bedplate_laptops_sessions{transport="udp"} 1\n' in metrics


def test_a_gateway_serves_again_after_a_boot(gateways: tuple[Node, ...], applied: dict[str, Any]) -> None:
    """The packet filter is there before the network, and the daemons come up by themselves."""
    home = gateways[1]
    home.restart()
    home.run("chmod 666 /dev/net/tun")

    until(lambda: home.run("systemctl is-active bedplate-laptops@udp || true").strip() == "active", 60, "it serves")

    assert "chain forward" in home.run("nft list table inet bedplate_laptops")


def test_a_revoked_laptop_is_cut_off_over_ssh(
    client: LabProgram, operator: Operator, stand: Stand, fleet: Path
) -> None:
    """By the one command, at the gateway where it is connected; the other gateway knows, too."""
    done = operator.bedplate("vpn", "revoke", "ada", str(fleet), "--ssh-config", str(stand.ssh_config))

    assert done.returncode == 0, done.stderr
    assert "cellar was told, 1 session ended" in done.stdout
    assert _sessions(operator, stand, fleet) == []


@pytest.mark.parametrize("role", ["openvpn", "keeper"])
def test_the_audit_finds_nothing_amiss(role: str, client: LabProgram, operator: Operator, fleet: Path) -> None:
    """What the roles and a sync have made keeps every promise of theirs."""
    (told,) = operator.findings(GATE, "--role", role)["nodes"]

    assert {each["rule"]: each["outcome"] for each in told["verdicts"] if each["outcome"] != "kept"} == {}
    assert told["verdicts"]
