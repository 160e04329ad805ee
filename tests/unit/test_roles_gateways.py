"""The roles of gateways (`guard`, `openvpn`, `vpnagent`) and the role `monitoring`."""

import json
from ipaddress import IPv4Address

import pytest
from pyinfra.api.exceptions import DeployError

from bedplate.errors import InputError
from bedplate.plan.laptops import laptop_gateways
from bedplate.plan.nodes import permanent_nodes
from roles.base import STAGES
from roles.catalog import names_of, roles_of
from roles.guard.role import BGP_DAEMONS, SERVICE, Guard, KernelLacks
from roles.monitoring.role import KEYS, LOOPBACK, MAKE_KEY, WEB, Monitoring, PrivateAddress
from roles.openvpn.role import OpenVpn, gateway_files
from roles.system import UnitStates
from roles.vpnagent.role import VpnAgent, agent_files
from tests.testlab.fakes.node import Played, Recorded, Recorder, recorded
from tests.testlab.fleets.variants import (
    LAB_PLAN,
    cellar_gateway,
    connected_regions_plan,
    gateway_of,
    lab_gateways,
    lab_node,
    unrecorded,
)
from tests.testlab.network.gateways import read_unit
from tests.testlab.rehearsal.programs import EXAMPLES, plan_of
from vpn.sites.files import LAST_ROUTES, files_of

RULES = "/etc/bedplate/guard/guard.nft"
GUARD = Guard(cellar_gateway().remote_blocks, speaks_bgp=True)


def test_the_guard_writes_the_rules_of_the_gateway(system: Recorded) -> None:
    """The role writes the same rules, sysctls and scripts as `bedplate vpn tunnels`."""
    played = Recorder(system).play(GUARD)

    files = {str(file.path): file.text for file in files_of(cellar_gateway())}
    for path in (
        RULES,
        "/etc/bedplate/guard/last-routes",
        "/etc/sysctl.d/60-bedplate-gateway.conf",
        "/usr/local/lib/bedplate/ipsec-devices",
        "/usr/local/lib/bedplate/ipsec-look",
        "/usr/local/lib/bedplate/ipsec-watch",
    ):
        assert played.written(path) == files[path]


def test_apparmor_allows_the_tunnel_folders(system: Recorded) -> None:
    """The AppArmor profiles are extended, and reloaded only after a change."""
    played = Recorder(system).play(GUARD)
    again = Recorder(system, played.disk).play(GUARD, stages=["configure", "activate"])

    for name in ("swanctl", "charon-systemd"):
        assert "/run/bedplate-ipsec/*         rw,\n" in played.written(f"/etc/apparmor.d/local/usr.sbin.{name}")
    assert played.step("Reload AppArmor profiles of strongSwan").commands
    assert not again.step("Reload AppArmor profiles of strongSwan").commands


@pytest.mark.parametrize(
    ("shell", "commands"),
    [("/bin/sh", ["usermod -s /usr/sbin/nologin frr"]), ("/usr/sbin/nologin", [])],
)
def test_frr_has_no_shell(shell: str, commands: list[str], system: Recorded) -> None:
    """The account of FRR, which Debian 13's package creates with a shell, gets none."""
    account = f"frr:x:103:107::/nonexistent:{shell}|frr|frr frrvty||!"
    played = Recorder(system.but({"server.Users": (account,)})).play(GUARD)

    assert list(map(str, played.step("Remove the shell of frr").commands)) == commands


def test_forwarding_is_enabled_after_the_guard(system: Recorded) -> None:
    """The packet filter is loaded before forwarding is enabled."""
    names = list(Recorder(system).play(GUARD).names)

    assert names.index("Start the tunnel guard") < names.index("Enable forwarding for tunnels")
    assert SERVICE == "bedplate-guard.service"


def test_the_guard_unit_loads_rules_and_routes(system: Recorded) -> None:
    """The unit loads the rules and then the routes of last resort, on start and reload."""
    played = Recorder(system).play(GUARD)

    unit = read_unit(played.written(f"/etc/systemd/system/{SERVICE}"))
    commands = [["/usr/sbin/nft", "-f", RULES], ["/usr/bin/ip", "-batch", str(LAST_ROUTES)]]
    assert (unit.commands("ExecStart"), unit.commands("ExecReload")) == (commands, commands)


def test_frr_is_restarted_only_for_its_daemon_list(system: Recorded) -> None:
    """FRR runs bgpd, and is restarted only after a change of its list of daemons."""
    played = Recorder(system).play(GUARD)
    again = Recorder(system, played.disk).play(GUARD, stages=["configure", "activate"])

    assert "bgpd=yes\n" in played.written(BGP_DAEMONS)
    assert played.step("Restart FRR").commands
    assert not again.step("Restart FRR").commands


@pytest.mark.parametrize("missing", [("xfrm_interface",), ("esp4", "xfrm_interface")])
def test_a_kernel_without_ipsec_stops_the_apply(missing: tuple[str, ...], system: Recorded) -> None:
    """A missing kernel module is an error that names the package to install."""
    lacking = system.but({KernelLacks.name: ("6.8.0-1030-aws", *missing)})

    with pytest.raises(DeployError, match=f"{' and '.join(missing)}.*install linux-modules-extra-6.8.0-1030-aws"):
        Recorder(lacking).play(GUARD)


def test_only_tunnel_gateways_have_the_guard() -> None:
    """A site's tunnel gateway and the gateways of peered regions have the role, other nodes do not."""
    gateways = {
        plan.name: {node.name for node in permanent_nodes(plan) if "guard" in names_of(node)}
        for plan in (LAB_PLAN, connected_regions_plan())
    }

    assert gateways == {"lab": {"gate.cellar"}, "pair": {"laptops.us-west-2", "laptops.eu-north-1"}}


def test_a_gateway_with_static_routes_has_no_bgp(system: Recorded) -> None:
    """A gateway between regions runs no FRR, and has the rules of its own tunnels."""
    node = next(node for node in permanent_nodes(connected_regions_plan()) if node.name == "laptops.us-west-2")
    (guard,) = (role for role in roles_of(node) if isinstance(role, Guard))

    played = Recorder(system).play(guard)

    files = {str(file.path): file.text for file in files_of(gateway_of("us-west-2"))}
    assert played.written(RULES) == files[RULES]
    assert not [line for line in (*played.commands, *played.names) if "frr" in line.lower() or "bgp" in line.lower()]


@pytest.mark.parametrize(
    ("name", "roles"),
    [
        ("gate.cellar", {"vpnagent", "openvpn"}),
        ("laptops.us-west-2", {"vpnagent", "openvpn"}),
        ("titan-01.cellar", set()),
        ("control-1.us-west-2", set()),
    ],
)
def test_only_gateways_have_vpnagent_and_openvpn(name: str, roles: set[str]) -> None:
    """Only gateways have the roles `vpnagent` and `openvpn`."""
    assert {"vpnagent", "openvpn"} & set(names_of(lab_node(name))) == roles


def test_a_laptop_gateway_needs_a_name_server() -> None:
    """Without a name server for laptops, the role reports an error and writes nothing."""
    gateway = lab_gateways(unrecorded())[1]

    with pytest.raises(InputError, match="has no DNS resolver for the laptops of cellar"):
        OpenVpn(gateway).configure()


def test_a_laptop_gateway_is_configured_on_both_distributions(system: Recorded) -> None:
    """Files and units are the same on Debian and Ubuntu; a second run changes nothing."""
    roles = (VpnAgent(), OpenVpn(lab_gateways()[1]))
    answers = system.but({"server.Which(command=useradd)": ("/usr/sbin/useradd",)})
    played = Recorder(answers).play(*roles)
    again = Recorder(answers, played.disk).play(*roles, stages=["configure", "activate"])

    assert {
        file.path for file in (*agent_files(in_cloud=False), *gateway_files(lab_gateways()[1]))
    } <= played.disk.entries.keys()
    assert played.names.index("Start the laptop packet filter") < played.names.index("Enable OpenVPN at boot (udp)")
    assert any("install" in line and "openvpn" in line for line in played.step("Install OpenVPN").commands)
    assert not [line for line in again.commands if line.startswith("upload") or " restart " in line]


def test_only_the_gateway_of_a_single_region_runs_dns(system: Recorded) -> None:
    """A gateway whose fleet gets resolver endpoints later stops its forwarder."""
    (single,) = laptop_gateways(plan_of(EXAMPLES / "gpu-box.yaml"))
    answers = system.but({"server.Which(command=useradd)": ("/usr/sbin/useradd",)})

    played, other = (Recorder(answers).play(OpenVpn(gateway)) for gateway in (single, lab_gateways()[0]))

    assert any("dnsmasq-base" in line for line in played.step("Install OpenVPN").commands)
    assert "Start DNS for laptops" in played.changes
    assert "Stop DNS for laptops" in other.names
    assert not any("dnsmasq-base" in line for line in other.commands)


def test_the_role_writes_no_key() -> None:
    """Keys come from `bedplate vpn sync`; plans, reports and logs contain none."""
    text = "".join(file.text for gateway in lab_gateways() for file in gateway_files(gateway))

    assert "BEGIN" not in text


DEBIAN = recorded("debian-12")
UBUNTU = recorded("ubuntu-24.04")
UNIT = "prometheus-node-exporter.service"
SETTINGS = "/etc/default/prometheus-node-exporter"


def listen_address(played: Played) -> str:
    """Return the listen address in the exporter's configuration."""
    (option,) = [word for word in played.written(SETTINGS).split() if "--web.listen-address=" in word]
    return option.rpartition("=")[2]


@pytest.mark.parametrize("table", [DEBIAN, UBUNTU], ids=["debian", "ubuntu"])
@pytest.mark.parametrize(
    ("address", "where"),
    [(IPv4Address("192.168.40.21"), "192.168.40.21:9100"), (None, "10.64.33.7:9100")],
    ids=["planned", "from EC2"],
)
def test_the_exporter_listens_on_the_private_address(table: Recorded, address: IPv4Address | None, where: str) -> None:
    """The exporter listens on the planned address, or on the address that AWS assigned."""
    assert listen_address(Recorder(table).play(Monitoring(address))) == where


def test_without_an_address_the_exporter_listens_on_loopback() -> None:
    """Without a route, the exporter listens on loopback, not on all addresses."""
    table = DEBIAN.but({PrivateAddress.name: None})

    assert listen_address(Recorder(table).play(Monitoring(None))) == f"{LOOPBACK}:9100"


def test_the_private_address_is_read_from_the_route() -> None:
    """The address is the word after `src`."""
    assert PrivateAddress().process(["192.0.2.1 dev wg0 src 172.16.0.9 uid 0 "]) == IPv4Address("172.16.0.9")
    assert PrivateAddress().process(["RTNETLINK answers: Network is unreachable"]) == LOOPBACK


def test_the_exporter_is_restarted_after_a_change() -> None:
    """A new address restarts the exporter; a second run does not."""
    running = DEBIAN.but(
        {
            "deb.DebPackages": tuple(
                f"ii  {name}  1.5.0  amd64  -" for name in ("prometheus-node-exporter", "openssl", "python3")
            ),
            UnitStates.name: ("active", f"multi-user.target.wants/{UNIT}"),
        }
    )
    recorder = Recorder(running)
    recorder.play(Monitoring(IPv4Address("10.0.0.1")))

    same = recorder.play(Monitoring(IPv4Address("10.0.0.1")))
    moved = recorder.play(Monitoring(IPv4Address("10.0.0.2")))

    assert same.changes == []
    assert moved.changes == ["Configure the exporter", "Restart the exporter"]


def test_an_observed_machine_serves_over_tls() -> None:
    """With a hub the exporter has a key that is made on the machine, and its collectors run; without, neither."""
    alone, observed = (Recorder(DEBIAN).play(Monitoring(IPv4Address("10.0.0.1"), seen)) for seen in (False, True))

    web = json.loads(observed.written(WEB))["tls_server_config"]
    drop_in = observed.written(f"/etc/systemd/system/{UNIT}.d/60-bedplate.conf")
    assert f"--web.config.file={WEB} " in observed.written(SETTINGS)
    assert f"ExecStartPre=+{MAKE_KEY}" in drop_in.splitlines()
    assert {web["cert_file"], web["key_file"]} == {f"{KEYS}/tls.crt", f"{KEYS}/tls.key"}
    assert not [file for file in observed.disk.entries if file.startswith(KEYS)]
    assert observed.step("Start the collectors of metrics").changed
    assert "web.config" not in alone.written(SETTINGS)
    assert not [name for name in alone.names if "metrics of" in name or "collectors" in name]
    assert not {WEB, MAKE_KEY} & alone.disk.entries.keys()


def test_changed_collectors_restart_without_the_exporter() -> None:
    """New mounts restart the collectors only."""
    recorder = Recorder(DEBIAN.but({UnitStates.name: ("active", f"multi-user.target.wants/{UNIT}")}))
    recorder.play(Monitoring(IPv4Address("10.0.0.1"), is_observed=True))

    mounted = recorder.play(Monitoring(IPv4Address("10.0.0.1"), is_observed=True, mounts=("/home",)), stages=STAGES[1:])

    assert "Restart the collectors of metrics" in mounted.changes
    assert "Restart the exporter" not in mounted.changes
    assert "ExecStart=/usr/local/sbin/bedplate-metrics /home\n" in mounted.written(
        "/etc/systemd/system/bedplate-metrics.service"
    )


def test_the_installed_exporter_listens_on_loopback() -> None:
    """The package starts the exporter at once: its configuration is written before."""
    recorder = Recorder(DEBIAN)

    installed = recorder.play(Monitoring(IPv4Address("10.0.0.1")), stages=["install"])

    assert installed.names == ["Bind the exporter to loopback", "Install the node exporter"]
    assert listen_address(installed) == f"{LOOPBACK}:9100"


def test_unit_states_are_read_in_one_query() -> None:
    """`active` comes from systemd, `enabled` from the links on disk."""
    fact = UnitStates()
    command = fact.command(("ssh.service", "none.service")).get_raw_value()

    output = ["active", "inactive", "multi-user.target.wants/ssh.service"]

    assert command.startswith("systemctl is-active ssh.service none.service ;")
    assert "*.wants/ssh.service *.wants/none.service" in command
    assert fact.process(output) == {"ssh.service": {"active", "enabled"}, "none.service": {"inactive"}}


@pytest.mark.parametrize(
    ("states", "commands"),
    [
        (("active", f"multi-user.target.wants/{UNIT}"), []),
        (("failed", f"multi-user.target.wants/{UNIT}"), ["systemctl start"]),
        (("active",), ["systemctl --root=/ --quiet enable"]),
        (None, ["systemctl --root=/ --quiet enable", "systemctl start"]),
    ],
    ids=["runs", "failed", "disabled", "new"],
)
def test_a_unit_is_started_and_enabled_only_if_needed(states: tuple[str, ...] | None, commands: list[str]) -> None:
    """A running and enabled unit is not changed."""
    table = DEBIAN.but({UnitStates.name: states})

    played = Recorder(table).play(Monitoring(IPv4Address("10.0.0.1")), stages=["activate"])

    assert [*played.step("Start the exporter").commands] == [f"{command} {UNIT}" for command in commands]
