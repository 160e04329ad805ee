"""The role `guard`: a site's gateway lets nothing for another gateway out in the clear, tunnels or none."""

from bedplate.plan.nodes import standing_nodes
from roles.catalog import names_of
from roles.guard.role import BGP_DAEMONS, HANDOVER_SERVICE, SERVICE, Guard
from tests.support.recorded import recorded
from tests.support.recorder import Recorder
from tests.support.site_side import LAB, cellar
from vpn.sites.engine import Engine
from vpn.sites.files import HANDOVER, files_of

DEBIAN = recorded("debian-12")
RULES = "/etc/bedplate/guard/guard.nft"
GUARD = Guard(cellar(Engine.KERNEL).elsewhere)


def test_the_guard_is_that_of_the_gateways_tunnels() -> None:
    """Rules, settings and scripts are the very files that the gateway has with its tunnels."""
    played = Recorder(DEBIAN).play(GUARD)

    whole = {str(file.path): file.text for file in files_of(cellar(Engine.DAEMON))}
    for path in (
        RULES,
        "/etc/sysctl.d/60-bedplate-gateway.conf",
        "/usr/local/lib/bedplate/ipsec-devices",
        "/usr/local/lib/bedplate/ipsec-dial",
    ):
        assert played.written(path) == whole[path]


def test_nothing_is_forwarded_before_the_guard_stands() -> None:
    """The packet filter comes up first, then packets pass."""
    names = list(Recorder(DEBIAN).play(GUARD).names)

    assert names.index("Guard of tunnels") < names.index("Site's packets pass")
    assert SERVICE == "bedplate-guard.service"


def test_bgp_runs_with_its_daemon() -> None:
    """FRR starts zebra and bgpd, and starts anew only where the list of its daemons is another."""
    played = Recorder(DEBIAN).play(GUARD)
    again = Recorder(DEBIAN, played.disk).play(GUARD, stages=["configure", "activate"])

    assert "bgpd=yes\n" in played.written(BGP_DAEMONS)
    assert played.step("BGP by what is written now").commands
    assert not again.step("BGP by what is written now").commands


def test_the_handover_is_loaded_at_boot_once_there_is_one() -> None:
    """Its unit is enabled by the role, and passes over a gateway that has no tunnels yet."""
    played = Recorder(DEBIAN).play(GUARD)

    unit = played.written(f"/etc/systemd/system/{HANDOVER_SERVICE}")
    assert f"ConditionPathExists={HANDOVER}\n" in unit
    assert any("enable" in line and HANDOVER_SERVICE in line for line in played.commands)


def test_only_gateways_of_sites_have_it() -> None:
    """The machine at which a site's tunnels end, and no other."""
    having = {node.name for node in standing_nodes(LAB) if "guard" in names_of(node)}

    assert having == {"gate.cellar"}
