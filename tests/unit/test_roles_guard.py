"""The role `guard`: a gateway lets nothing for another gateway out in the clear, tunnels or none."""

import pytest
from pyinfra.api.exceptions import DeployError

from bedplate.plan.nodes import standing_nodes
from roles.catalog import names_of, roles_of
from roles.guard.role import BGP_DAEMONS, SERVICE, Guard
from tests.support.joined_fleet import gateway_of, joined_plan
from tests.support.lab_unit import read_unit
from tests.support.recorded import Recorded
from tests.support.recorder import Recorder
from tests.support.site_side import LAB, cellar
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
    lacking = system.but({"roles.guard.kernel.KernelLacks": ("6.8.0-1030-aws", *missing)})

    with pytest.raises(DeployError, match=f"{' and '.join(missing)}.*install linux-modules-extra-6.8.0-1030-aws"):
        Recorder(lacking).play(GUARD)


def test_only_gateways_of_tunnels_have_it() -> None:
    """The machine at which a site's tunnels end, gateways of regions that join them by themselves, and no other."""
    having = {
        plan.name: {node.name for node in standing_nodes(plan) if "guard" in names_of(node)}
        for plan in (LAB, joined_plan())
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
