"""Gateways of tunnels: the guard, and the tunnels without which nothing that is for another gateway leaves."""

import re

from testinfra.host import Host

from bedplate.compliance.subject import concerns
from bedplate.plan import FleetPlan
from bedplate.plan.nodes import Duty, NodePlan
from roles.guard.role import BGP_SERVICE, CONFINED, SERVICE, bounds_of
from vpn.guard.guard import PROTOCOL, guard_text, last_routes_text
from vpn.sites.files import GUARD, STANDARD
from vpn.sites.gateway import MTU
from vpn.status import wanted

pytestmark = concerns(lambda node: bool(node.duties & {Duty.TUNNELS, Duty.JOINT}) and bool(node.elsewhere))
_MEND = "`bedplate vpn tunnels` mends it"


def test_the_guard_is_the_plans(host: Host, node: NodePlan) -> None:
    """What is for another gateway leaves by a tunnel or not at all: what is written is what the kernel holds."""
    text = guard_text(node.elsewhere, MTU)
    listed = "nft --stateless list table inet bedplate_guard"

    assert host.file(str(GUARD)).content_string == text
    # A network that nobody is in shows what the text comes to, in the kernel's own words.
    assert host.check_output(listed) == host.check_output(f"unshare --net sh -c 'nft -f {GUARD} && {listed}'")


def test_what_no_tunnel_takes_is_refused_at_once(host: Host, node: NodePlan) -> None:
    """Routes of last resort lie under those of tunnels: whoever asks while none stands hears it, and does not wait."""
    laid = host.check_output(f"ip route show type unreachable proto {PROTOCOL}")

    missing = set(re.findall(r"unreachable (\S+)", last_routes_text(node.elsewhere))) - set(laid.split())
    assert not missing, f"nothing refuses what is for {', '.join(sorted(missing))}"


def test_charons_are_let_to_their_settings(host: Host, node: NodePlan) -> None:
    """The distribution confines strongSwan's programs to folders of their own, and ours lie elsewhere."""
    for name in CONFINED:
        assert "/etc/bedplate/ipsec/** " in host.file(bounds_of(name)).content_string


def test_packets_are_led_on(host: Host, node: NodePlan) -> None:
    """A gateway that keeps packets to itself has tunnels and leads nobody through them."""
    assert host.sysctl("net.ipv4.ip_forward") == 1


def test_nobody_is_told_to_go_around_it(host: Host, node: NodePlan) -> None:
    """While a tunnel is down a redirect would send the next packets past the guard, in the clear."""
    told = host.check_output("grep -H . /proc/sys/net/ipv4/conf/*/send_redirects").splitlines()

    assert [line for line in told if not line.endswith(":0")] == []


def test_answers_may_come_by_the_other_tunnel(host: Host, node: NodePlan) -> None:
    """Each region has two tunnels, and AWS picks the way back: a strict filter of reverse paths drops half of it."""
    assert host.sysctl("net.ipv4.conf.all.rp_filter") == 2


def test_the_guard_and_bgp_run_at_each_boot(host: Host, node: NodePlan) -> None:
    """Without the guard what has lost its tunnel leaves in the clear; without BGP no tunnel of a site has a route."""
    bgp = (BGP_SERVICE,) if Duty.TUNNELS in node.duties else ()
    for unit in (SERVICE, *bgp):
        assert host.service(unit).is_enabled
        assert host.service(unit).is_running


def test_every_tunnel_of_the_plan_is_served(host: Host, node: NodePlan, plan: FleetPlan) -> None:
    """Each has its charon, which runs, with what dials those that do not stand, now and at each boot."""
    asked = f"grep -H '' {STANDARD.etc}/*/table 2>/dev/null || true"
    rows = [line.split()[0].rpartition("/table:") for line in host.check_output(asked).splitlines()]
    served = {name: charon.rpartition("/")[2] for charon, _, name in rows}
    missing = {tunnel.name for tunnel in wanted(plan, node, None).tunnels} - served.keys()
    assert not missing, f"{', '.join(sorted(missing))} not carried here: {_MEND}"

    for charon in sorted(set(served.values())):
        for unit in (f"bedplate-ipsec-{charon}.service", f"bedplate-ipsec-{charon}-dial.service"):
            assert host.service(unit).is_running, f"{unit} does not run: {_MEND}"
            assert host.service(unit).is_enabled, f"{unit} is off at boot: {_MEND}"


def test_keys_of_tunnels_are_roots_alone(host: Host, node: NodePlan) -> None:
    """Whoever reads one can stand where the gateway stands, and hear what goes through."""
    found = f"find {STANDARD.etc} -type f ! -name table '(' -perm /077 -o ! -user root ')' 2>/dev/null || true"
    loose = host.check_output(found)
    assert not loose, f"{loose.replace(chr(10), ', ')}: others may read keys; {_MEND}"
