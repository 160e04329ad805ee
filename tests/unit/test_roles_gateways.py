"""The role `guard`: a gateway lets nothing for another gateway out in the clear, tunnels or none."""

import subprocess
import sys
from ipaddress import IPv4Address
from pathlib import Path

import pytest
from pyinfra.api.exceptions import DeployError

import vpn.keeper
from bedplate.errors import InputError
from bedplate.plan.nodes import standing_nodes
from roles.catalog import names_of, roles_of
from roles.guard.role import BGP_DAEMONS, SERVICE, Guard
from roles.keeper.role import FOLDER, Keeper, keeper_files
from roles.monitoring.role import NOBODY, Monitoring, PrivateAddress
from roles.openvpn.role import OpenVpn, gateway_files
from roles.system import States
from tests.testlab.fakes.node import Played, Recorded, Recorder, recorded
from tests.testlab.fleets.variants import (
    SITE_SIDE_LAB,
    cellar,
    gateway_of,
    joined_plan,
    lab_gateways,
    lab_node,
    unrecorded,
)
from tests.testlab.network.gateways import read_unit
from vpn.sites.files import LAST_ROUTES, files_of

RULES = "/etc/bedplate/guard/guard.nft"
GUARD = Guard(cellar().elsewhere, speaks_bgp=True)


def test_the_guard_is_that_of_the_gateways_tunnels(system: Recorded) -> None:
    """Rules, settings and scripts are the very files that the gateway has with its tunnels."""
    played = Recorder(system).play(GUARD)

    whole = {str(file.path): file.text for file in files_of(cellar())}
    for path in (
        RULES,
        "/etc/bedplate/guard/last-routes",
        "/etc/sysctl.d/60-bedplate-gateway.conf",
        "/usr/local/lib/bedplate/ipsec-devices",
        "/usr/local/lib/bedplate/ipsec-look",
        "/usr/local/lib/bedplate/ipsec-watch",
    ):
        assert played.written(path) == whole[path]


def test_charons_may_read_where_their_settings_lie(system: Recorded) -> None:
    """AppArmor's profiles of the distribution are widened before anything is started, and read anew only then."""
    played = Recorder(system).play(GUARD)
    again = Recorder(system, played.disk).play(GUARD, stages=["configure", "activate"])

    for name in ("swanctl", "charon-systemd"):
        assert "/run/bedplate-ipsec/*         rw,\n" in played.written(f"/etc/apparmor.d/local/usr.sbin.{name}")
    assert played.step("Bounds are read").commands
    assert not again.step("Bounds are read").commands


def test_nothing_is_forwarded_before_the_guard_stands(system: Recorded) -> None:
    """The packet filter comes up first, then packets pass."""
    names = list(Recorder(system).play(GUARD).names)

    assert names.index("Guard of tunnels") < names.index("Packets pass")
    assert SERVICE == "bedplate-guard.service"


def test_its_unit_lays_the_routes_under_the_guard(system: Recorded) -> None:
    """Rules, then routes of last resort, at each start and where either is another."""
    played = Recorder(system).play(GUARD)

    unit = read_unit(played.written(f"/etc/systemd/system/{SERVICE}"))
    laid = [["/usr/sbin/nft", "-f", RULES], ["/usr/bin/ip", "-batch", str(LAST_ROUTES)]]
    assert (unit.commands("ExecStart"), unit.commands("ExecReload")) == (laid, laid)


def test_bgp_runs_with_its_daemon(system: Recorded) -> None:
    """FRR starts zebra and bgpd, and starts anew only where the list of its daemons is another."""
    played = Recorder(system).play(GUARD)
    again = Recorder(system, played.disk).play(GUARD, stages=["configure", "activate"])

    assert "bgpd=yes\n" in played.written(BGP_DAEMONS)
    assert played.step("BGP by what is written now").commands
    assert not again.step("BGP by what is written now").commands


@pytest.mark.parametrize("missing", [("xfrm_interface",), ("esp4", "xfrm_interface")])
def test_a_kernel_without_ipsec_stops_the_apply(missing: tuple[str, ...], system: Recorded) -> None:
    """Before anything is changed; the message names the package to install."""
    lacking = system.but({"roles.guard.role.KernelLacks": ("6.8.0-1030-aws", *missing)})

    with pytest.raises(DeployError, match=f"{' and '.join(missing)}.*install linux-modules-extra-6.8.0-1030-aws"):
        Recorder(lacking).play(GUARD)


def test_only_gateways_of_tunnels_have_it() -> None:
    """The machine at which a site's tunnels end, gateways of regions that join them by themselves, and no other."""
    having = {
        plan.name: {node.name for node in standing_nodes(plan) if "guard" in names_of(node)}
        for plan in (SITE_SIDE_LAB, joined_plan())
    }

    assert having == {"lab": {"gate.cellar"}, "pair": {"laptops.us-west-2", "laptops.eu-north-1"}}


def test_a_gateway_whose_routes_follow_from_the_plan_speaks_no_bgp(system: Recorded) -> None:
    """No daemon listens to others there, and the guard is that of the gateways' own tunnels."""
    node = next(node for node in standing_nodes(joined_plan()) if node.name == "laptops.us-west-2")
    (guard,) = (role for role in roles_of(node) if isinstance(role, Guard))

    played = Recorder(system).play(guard)

    whole = {str(file.path): file.text for file in files_of(gateway_of("us-west-2"))}
    assert played.written(RULES) == whole[RULES]
    assert not [line for line in (*played.commands, *played.names) if "frr" in line.lower() or "bgp" in line.lower()]


@pytest.mark.parametrize(
    ("name", "roles"),
    [
        ("gate.cellar", {"keeper", "openvpn"}),
        ("laptops.us-west-2", {"keeper", "openvpn"}),
        ("titan-01.cellar", set()),
        ("control-1.us-west-2", set()),
    ],
)
def test_gateways_have_them_and_nobody_else(name: str, roles: set[str]) -> None:
    """A site's gateway has a keeper for its tunnels, too."""
    assert {"keeper", "openvpn"} & set(names_of(lab_node(name))) == roles


def test_a_gateway_is_not_made_before_it_is_known_who_answers_for_names() -> None:
    """Refused before anything is written: laptops would be told to ask nobody."""
    gateway = lab_gateways(unrecorded())[1]

    with pytest.raises(InputError, match="has no DNS resolver for the laptops of cellar"):
        OpenVpn(gateway).configure()


def test_a_gateway_is_made_alike_on_both_systems(system: Recorded) -> None:
    """Files, units and their order are one; a second run writes nothing and restarts nothing."""
    roles = (Keeper(), OpenVpn(lab_gateways()[1]))
    answers = system.but({"server.Which(command=useradd)": ("/usr/sbin/useradd",)})
    played = Recorder(answers).play(*roles)
    again = Recorder(answers, played.disk).play(*roles, stages=["configure", "activate"])

    assert {file.path for file in (*keeper_files(), *gateway_files(lab_gateways()[1]))} <= played.disk.entries.keys()
    assert played.names.index("Guard of laptops") < played.names.index("Laptops over udp at boot")
    assert any("install" in line and "openvpn" in line for line in played.step("Gateway of laptops").commands)
    assert not [line for line in again.commands if line.startswith("upload") or " restart " in line]


def test_no_key_is_in_what_the_role_writes() -> None:
    """Keys come by a sync; a plan, a report and a log of an apply hold none."""
    told = "".join(file.text for gateway in lab_gateways() for file in gateway_files(gateway))

    assert "BEGIN" not in told


def test_the_keeper_runs_by_what_is_written_alone(tmp_path: Path) -> None:
    """Nothing of the project is there but its own files: laid out as on a gateway, it says how to use it."""
    for file in keeper_files():
        if file.path.startswith(FOLDER):
            path = tmp_path / Path(file.path).relative_to(FOLDER)
            path.parent.mkdir(exist_ok=True)
            path.write_text(file.text)
    (program,) = (file.text for file in keeper_files() if file.path.endswith("/bedplate-vpn"))
    (tmp_path / "bedplate-vpn").write_text(program.replace(FOLDER, str(tmp_path)))

    done = subprocess.run(
        [sys.executable, "-I", "-S", "-B", tmp_path / "bedplate-vpn", "--help"],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert "take" in done.stdout
    assert len(list((tmp_path / "keeper").iterdir())) == len(list(Path(vpn.keeper.__file__).parent.glob("*.py")))


DEBIAN = recorded("debian-12")
UBUNTU = recorded("ubuntu-24.04")
UNIT = "prometheus-node-exporter.service"
SETTINGS = "/etc/default/prometheus-node-exporter"


def listening(played: Played) -> str:
    """Return where the exporter is told to listen."""
    (found,) = [word for word in played.written(SETTINGS).split() if "--web.listen-address=" in word]
    return found.rpartition("=")[2]


@pytest.mark.parametrize("table", [DEBIAN, UBUNTU], ids=["debian", "ubuntu"])
@pytest.mark.parametrize(
    ("address", "where"),
    [(IPv4Address("192.168.40.21"), "192.168.40.21:9100"), (None, "10.64.33.7:9100")],
    ids=["planned", "asked"],
)
def test_the_exporter_listens_on_the_private_address_alone(
    table: Recorded, address: IPv4Address | None, where: str
) -> None:
    """The plan's address, or the one that the node has among its fellows, and no other."""
    assert listening(Recorder(table).play(Monitoring(address))) == where


def test_a_node_that_reaches_nobody_is_watched_by_nobody() -> None:
    """Without an address it listens to itself, never to everybody."""
    table = DEBIAN.but({"roles.monitoring.role.PrivateAddress": None})

    assert listening(Recorder(table).play(Monitoring(None))) == f"{NOBODY}:9100"


def test_the_way_out_tells_the_address() -> None:
    """The word after `src` counts, whatever else iproute2 says."""
    assert PrivateAddress().process(["192.0.2.1 dev wg0 src 172.16.0.9 uid 0 "]) == IPv4Address("172.16.0.9")
    assert PrivateAddress().process(["RTNETLINK answers: Network is unreachable"]) == NOBODY


def test_new_settings_start_the_exporter_anew() -> None:
    """A change of address is a change of where it listens at once; no change starts nothing."""
    running = DEBIAN.but(
        {
            "deb.DebPackages": ("ii  prometheus-node-exporter  1.5.0  amd64  -",),
            "roles.system.States": ("active", f"multi-user.target.wants/{UNIT}"),
        }
    )
    recorder = Recorder(running)
    recorder.play(Monitoring(IPv4Address("10.0.0.1")))

    same = recorder.play(Monitoring(IPv4Address("10.0.0.1")))
    moved = recorder.play(Monitoring(IPv4Address("10.0.0.2")))

    assert same.changes == []
    assert moved.changes == ["Where the exporter listens", "Exporter reads its settings"]


def test_the_exporter_never_listens_to_everybody() -> None:
    """A package that starts its service by itself finds loopback in its settings; configure gives the address."""
    recorder = Recorder(DEBIAN)

    installed = recorder.play(Monitoring(IPv4Address("10.0.0.1")), stages=["install"])

    assert installed.names == ["Exporter waits for its address", "Node exporter"]
    assert listening(installed) == f"{NOBODY}:9100"


def test_units_are_asked_about_at_once() -> None:
    """Active are those that systemd says so of, in their order; enabled those that a link starts at boot."""
    fact = States()
    asked = fact.command(("ssh.service", "none.service")).get_raw_value()

    told = ["active", "inactive", "multi-user.target.wants/ssh.service"]

    assert asked.startswith("systemctl is-active ssh.service none.service ;")
    assert "*.wants/ssh.service *.wants/none.service" in asked
    assert fact.process(told) == {"ssh.service": {"active", "enabled"}, "none.service": {"inactive"}}


@pytest.mark.parametrize(
    ("told", "does"),
    [
        (("active", f"multi-user.target.wants/{UNIT}"), []),
        (("failed", f"multi-user.target.wants/{UNIT}"), ["systemctl start"]),
        (("active",), ["systemctl --no-reload --quiet enable"]),
        (None, ["systemctl --no-reload --quiet enable", "systemctl start"]),
    ],
    ids=["runs", "failed", "disabled", "new"],
)
def test_a_unit_is_started_and_enabled_only_where_it_is_not(told: tuple[str, ...] | None, does: list[str]) -> None:
    """What runs is left alone."""
    table = DEBIAN.but({"roles.system.States": told})

    played = Recorder(table).play(Monitoring(IPv4Address("10.0.0.1")), stages=["activate"])

    assert [*played.step("Exporter runs").commands] == [f"{each} {UNIT}" for each in does]
