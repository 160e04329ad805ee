"""A site's two tunnels to a region with BGP: accepted routes, and failover."""

from collections.abc import Iterator
from dataclasses import replace
from time import monotonic, time

import pytest

from bedplate.programs.gateway.status import Neighbour, Status, Tunnel, read_neighbours
from tests.testlab.fleets.variants import LAB_PLAN, lab_node
from tests.testlab.network.netlab import capture, packets, pinging, refusal, until
from tests.testlab.network.sites import DESK, RACK, STRAY, SiteLab, site_lab
from vpn.sites.files import PROTOCOL
from vpn.status import expected_gateway, tunnel_findings

# BGP's hold time is 12 s; the rest is a margin for a busy machine.
MOST_SECONDS = 15
# How long a ping waits for its reply.
PATIENCE_SECONDS = 4


@pytest.fixture
def running_lab() -> Iterator[SiteLab]:
    """Return a site connected to its region by two tunnels."""
    with site_lab() as lab:
        lab.start()
        lab.wait()
        until(lambda: _announcing_neighbours(lab) == 2, 40, "only one tunnel announces the region")
        yield lab


def _announcing_neighbours(lab: SiteLab) -> int:
    """Return the number of BGP neighbours that announce the region's block."""
    table = lab.router.ask("-c", "show bgp ipv4 unicast 10.64.0.0/16")
    return sum(f"from {tunnel.far.inside.ip} " in table for tunnel in lab.site.gateway.tunnels if tunnel.far.inside)


def test_the_second_tunnel_replaces_one_that_fails(running_lab: SiteLab) -> None:
    """Within seconds, without an unencrypted packet in either direction."""
    lost = next(
        tunnel
        for tunnel in running_lab.site.gateway.tunnels
        if tunnel.far.inside and str(tunnel.far.inside.ip) in running_lab.routes
    )
    with capture(running_lab.internet, "c0") as wire:
        pings = pinging(running_lab.desk, RACK)
        pings.wait_for_answer(10)
        moment = time()
        running_lab.aws.lose(lost)
        until(lambda: any(reply_time > moment + 1 for reply_time in pings.answers.times), 60, "never came back")
        answers = pings.stop()

    assert answers.longest <= MOST_SECONDS
    assert lost.far.inside is not None
    assert str(lost.far.inside.ip) not in running_lab.routes
    assert not packets(wire, f"net 192.168.40.0/22 or net 10.64.0.0/16 or host {DESK}")


def test_without_both_tunnels_a_sender_gets_an_icmp_error(running_lab: SiteLab) -> None:
    """The last routes reject packets before the guard, which drops them without these routes."""
    gate, guard = running_lab.site.host, ("nft", "list", "table", "inet", "bedplate_guard")
    for tunnel in running_lab.site.gateway.tunnels:
        running_lab.aws.lose(tunnel)
    until(lambda: "10.64.0.0/16" not in running_lab.routes, 40, "BGP still announces the region")

    with capture(running_lab.internet, "c0") as wire:
        before = monotonic()
        output = refusal(running_lab.desk, RACK, PATIENCE_SECONDS)
        seconds = monotonic() - before
        unseen = gate.run(*guard)
        gate.run("ip", "route", "flush", "proto", str(PROTOCOL))
        output_without_routes = refusal(running_lab.desk, RACK, PATIENCE_SECONDS)
        seen = gate.run(*guard)

    assert "From 192.168.40.1 icmp_seq=1 Destination Host Unreachable" in output
    assert seconds < PATIENCE_SECONDS
    assert unseen.count("counter packets 0 ") == unseen.count("counter packets ")
    assert "Unreachable" not in output_without_routes
    assert seen.count("counter packets 0 ") < seen.count("counter packets ")
    assert not packets(wire, f"net 192.168.40.0/22 or net 10.64.0.0/16 or host {DESK}")


def test_bgp_status_has_sessions_and_routes(running_lab: SiteLab) -> None:
    """The stand-in announces the region's block, neither laptops nor pods: a finding. So is a lost session."""
    file, site = running_lab.site.host.folder / "root/etc/frr/frr.conf", running_lab.site.gateway
    lost, stays = site.tunnels

    def neighbours() -> dict[str, Neighbour]:
        return {
            neighbour.tunnel: neighbour
            for neighbour in read_neighbours(file, "--vty_socket", str(running_lab.router.folder))
        }

    before = neighbours()
    running_lab.aws.lose(lost)
    until(lambda: neighbours()[lost.name].age is None, 40, "BGP is still reported as up")

    assert {name: neighbour.blocks for name, neighbour in before.items()} == dict.fromkeys(before, ("10.64.0.0/16",))
    assert _messages(running_lab, tuple(before.values())) == [
        f"BGP announces no route to 10.121.0.0/22, 10.112.0.0/13, 10.120.0.0/20 through tunnel {tunnel.name}"
        for tunnel in site.tunnels
    ]
    assert neighbours()[stays.name].blocks == ("10.64.0.0/16",)
    assert f"BGP is down in tunnel {lost.name}" in _messages(running_lab, tuple(neighbours().values()))
    running_lab.router.stop()
    assert {neighbour.age for neighbour in neighbours().values()} == {None}


def _messages(running_lab: SiteLab, spoken: tuple[Neighbour, ...]) -> list[str]:
    """Return the findings about a gateway with these two tunnels up and this BGP status."""
    due = expected_gateway(LAB_PLAN, lab_node("gate.cellar"), None)
    names = {tunnel.name for tunnel in running_lab.site.gateway.tunnels}
    tunnels = tuple(Tunnel(name, 900, 1, 1, 1) for name in sorted(names))
    due = replace(due, tunnels=tuple(tunnel for tunnel in due.tunnels if tunnel.name in names))
    return [finding.message for finding in tunnel_findings(due, Status(0, {}, None, None, tunnels, bgp=spoken))]


def test_only_blocks_of_the_plan_are_accepted(running_lab: SiteLab) -> None:
    """Other routes from AWS are dropped, and the site announces only its own blocks."""
    assert "10.64.0.0/16" in running_lab.routes
    assert not any(stray in running_lab.routes for stray in STRAY)
    assert "src 192.168.40.1" in running_lab.routes
    advertised = running_lab.router.ask("-c", "show bgp ipv4 unicast neighbors 169.254.64.1 advertised-routes")
    assert "192.168.40.0/22" in advertised
    assert "10.121.4.0/22" in advertised
    assert "10.64.0.0/16" not in advertised


def test_bgps_routes_use_no_next_hop_objects(running_lab: SiteLab) -> None:
    """systemd-networkd 255 deletes foreign next-hop objects, and the kernel deletes the routes that use them."""
    assert "via" in running_lab.routes
    assert "nhid" not in running_lab.routes
