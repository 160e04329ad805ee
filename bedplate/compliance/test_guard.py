"""Rules for gateways with tunnels: the guard, which stops unencrypted traffic, and the tunnels themselves."""

import re

from testinfra.host import Host

from bedplate.compliance.settings import applies_if
from bedplate.plan import FleetPlan
from bedplate.plan.nodes import NodePlan, NodeRole
from roles.guard.role import BGP_SERVICE, CONFINED, SERVICE, bounds_of
from vpn.sites.files import GUARD_RULES, PROTOCOL, STANDARD, guard_text, last_routes_text
from vpn.sites.gateway import MTU
from vpn.status import expected_gateway

pytestmark = applies_if(
    lambda node: bool(node.roles & {NodeRole.TUNNELS, NodeRole.PEERED}) and bool(node.remote_blocks)
)
_FIX = "run `bedplate vpn tunnels`"


def test_guard_matches_the_plan(host: Host, node: NodePlan) -> None:
    """Traffic to other gateways uses a tunnel or is dropped: the planned rules are in the file and the kernel."""
    text = guard_text(node.remote_blocks, MTU)
    listed = "nft --stateless list table inet bedplate_guard"

    assert host.file(str(GUARD_RULES)).content_string == text
    # An empty network namespace shows the same rules as the kernel prints them.
    assert host.check_output(listed) == host.check_output(f"unshare --net sh -c 'nft -f {GUARD_RULES} && {listed}'")


def test_traffic_without_a_tunnel_fails_at_once(host: Host, node: NodePlan) -> None:
    """Unreachable routes cover all remote networks, so connections fail at once while no tunnel is up."""
    routes = host.check_output(f"ip route show type unreachable proto {PROTOCOL}")

    missing = set(re.findall(r"unreachable (\S+)", last_routes_text(node.remote_blocks))) - set(routes.split())
    assert not missing, f"no unreachable route for {', '.join(sorted(missing))}"


def test_apparmor_allows_strongswan_settings(host: Host, node: NodePlan) -> None:
    """AppArmor allows strongSwan's programs to read /etc/bedplate/ipsec."""
    for name in CONFINED:
        assert "/etc/bedplate/ipsec/** " in host.file(bounds_of(name)).content_string


def test_ip_forwarding_is_on(host: Host, node: NodePlan) -> None:
    """The gateway forwards IPv4 packets."""
    assert host.sysctl("net.ipv4.ip_forward") == 1


def test_redirects_are_not_sent(host: Host, node: NodePlan) -> None:
    """The gateway sends no ICMP redirects: they would route packets around the guard, unencrypted."""
    settings = host.check_output("grep -H . /proc/sys/net/ipv4/conf/*/send_redirects").splitlines()

    assert [line for line in settings if not line.endswith(":0")] == []


def test_reverse_path_filter_is_loose(host: Host, node: NodePlan) -> None:
    """Replies may arrive by either tunnel, because AWS chooses; a strict filter would drop half of them."""
    assert host.sysctl("net.ipv4.conf.all.rp_filter") == 2


def test_guard_and_bgp_start_at_boot(host: Host, node: NodePlan) -> None:
    """The guard, which stops unencrypted traffic, and BGP, which gives routes to sites, run and start at boot."""
    bgp = (BGP_SERVICE,) if NodeRole.TUNNELS in node.roles else ()
    for unit in (SERVICE, *bgp):
        assert host.service(unit).is_enabled
        assert host.service(unit).is_running


def test_planned_tunnels_are_up(host: Host, node: NodePlan, plan: FleetPlan) -> None:
    """Each planned tunnel has a charon that runs, and a dialer that restarts it, now and at boot."""
    command = f"grep -H '' {STANDARD.etc}/*/table 2>/dev/null || true"
    rows = [line.split()[0].rpartition("/table:") for line in host.check_output(command).splitlines()]
    charons = {name: folder.rpartition("/")[2] for folder, _, name in rows}
    missing = {tunnel.name for tunnel in expected_gateway(plan, node, None).tunnels} - charons.keys()
    assert not missing, f"not configured: {', '.join(sorted(missing))}; {_FIX}"

    for charon in sorted(set(charons.values())):
        for unit in (f"bedplate-ipsec-{charon}.service", f"bedplate-ipsec-{charon}-dial.service"):
            assert host.service(unit).is_running, f"{unit} does not run; {_FIX}"
            assert host.service(unit).is_enabled, f"{unit} does not start at boot; {_FIX}"


def test_tunnel_keys_are_private(host: Host, node: NodePlan) -> None:
    """Only root can read the tunnel keys; a copy of a key can impersonate the gateway."""
    command = f"find {STANDARD.etc} -type f ! -name table '(' -perm /077 -o ! -user root ')' 2>/dev/null || true"
    readable = host.check_output(command)
    assert not readable, f"readable by other users: {readable.replace(chr(10), ', ')}; {_FIX}"
