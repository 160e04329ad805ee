"""A site's two tunnels to a region, by BGP over their inside addresses: what is believed, and what if one goes."""

from collections.abc import Iterator
from dataclasses import replace
from time import monotonic, time

import pytest

from tests.testlab.fleets.variants import SITE_SIDE_LAB, lab_node
from tests.testlab.network.netlab import capture, packets, pinging, refusal, until
from tests.testlab.network.sites import DESK, RACK, STRAY, SiteLab, site_lab
from vpn.guard.guard import PROTOCOL
from vpn.keeper.status import Neighbour, Status, Tunnel, read_neighbours
from vpn.status import tunnel_findings, wanted

# A dead end is noticed by BGP's hold of 12 s; the rest is for a machine that does other things as well.
MOST_SECONDS = 15
# How long a ping waits for its answer.
PATIENCE_SECONDS = 4


@pytest.fixture
def stands() -> Iterator[SiteLab]:
    """Give a site that reaches its region by two tunnels."""
    with site_lab() as made:
        made.start()
        made.wait()
        until(lambda: _tellers(made) == 2, 40, "one tunnel alone tells of the region")
        yield made


def _tellers(made: SiteLab) -> int:
    """Return how many read_neighbours have told of the region's block."""
    table = made.router.ask("-c", "show bgp ipv4 unicast 10.64.0.0/16")
    return sum(f"from {one.far.inside.ip} " in table for one in made.site.gateway.tunnels if one.far.inside)


def test_a_tunnel_that_goes_is_replaced_by_the_other(stands: SiteLab) -> None:
    """With one end lost, packets go by the other tunnel within seconds, in neither direction in the clear."""
    lost = next(
        one for one in stands.site.gateway.tunnels if one.far.inside and str(one.far.inside.ip) in stands.routes
    )
    with capture(stands.internet, "c0") as wire:
        pings = pinging(stands.desk, RACK)
        pings.wait_for_answer(10)
        moment = time()
        stands.aws.lose(lost)
        until(lambda: any(one > moment + 1 for one in pings.answers.times), 60, "never came back")
        answers = pings.stop()

    assert answers.longest <= MOST_SECONDS
    assert lost.far.inside is not None
    assert str(lost.far.inside.ip) not in stands.routes
    assert not packets(wire, f"net 192.168.40.0/22 or net 10.64.0.0/16 or host {DESK}")


def test_with_both_tunnels_gone_a_sender_is_told_at_once(stands: SiteLab) -> None:
    """The gateway says that there is no way, and its guard sees nothing of it; without the last routes it would.

    Either way nothing is in the clear.
    """
    gate, guard = stands.site.host, ("nft", "list", "table", "inet", "bedplate_guard")
    for tunnel in stands.site.gateway.tunnels:
        stands.aws.lose(tunnel)
    until(lambda: "10.64.0.0/16" not in stands.routes, 40, "BGP still tells of the region")

    with capture(stands.internet, "c0") as wire:
        before = monotonic()
        told = refusal(stands.desk, RACK, PATIENCE_SECONDS)
        seconds = monotonic() - before
        unseen = gate.run(*guard)
        gate.run("ip", "route", "flush", "proto", str(PROTOCOL))
        untold = refusal(stands.desk, RACK, PATIENCE_SECONDS)
        seen = gate.run(*guard)

    assert "From 192.168.40.1 icmp_seq=1 Destination Host Unreachable" in told
    assert seconds < PATIENCE_SECONDS
    assert unseen.count("counter packets 0 ") == unseen.count("counter packets ")
    assert "Unreachable" not in untold
    assert seen.count("counter packets 0 ") < seen.count("counter packets ")
    assert not packets(wire, f"net 192.168.40.0/22 or net 10.64.0.0/16 or host {DESK}")


def test_a_gateway_says_whom_bgp_reaches_and_what_is_told(stands: SiteLab) -> None:
    """By each tunnel the region's block, and not its laptops' pool, which AWS's stand-in keeps to itself: it is named.

    With one end lost BGP by that tunnel is told to be down; what FRR is not asked for is not told to stand.
    """
    file, site = stands.site.host.folder / "root/etc/frr/frr.conf", stands.site.gateway
    lost, stays = site.tunnels

    def told() -> dict[str, Neighbour]:
        return {each.tunnel: each for each in read_neighbours(file, "--vty_socket", str(stands.router.folder))}

    before = told()
    stands.aws.lose(lost)
    until(lambda: told()[lost.name].age is None, 40, "BGP is still told to stand")

    assert {name: each.blocks for name, each in before.items()} == dict.fromkeys(before, ("10.64.0.0/16",))
    assert _amiss(stands, tuple(before.values())) == [
        f"BGP announces no route to 10.121.0.0/22 through tunnel {one.name}" for one in site.tunnels
    ]
    assert told()[stays.name].blocks == ("10.64.0.0/16",)
    assert f"BGP is down in tunnel {lost.name}" in _amiss(stands, tuple(told().values()))
    stands.router.stop()
    assert {each.age for each in told().values()} == {None}


def _amiss(stands: SiteLab, spoken: tuple[Neighbour, ...]) -> list[str]:
    """Return what is amiss at a gateway with these two tunnels, both well, and BGP as it is told."""
    due = wanted(SITE_SIDE_LAB, lab_node("gate.cellar"), None)
    names = {one.name for one in stands.site.gateway.tunnels}
    tunnels = tuple(Tunnel(name, 900, 1, 1, 1) for name in sorted(names))
    due = replace(due, tunnels=tuple(each for each in due.tunnels if each.name in names))
    return [finding.message for finding in tunnel_findings(due, Status(0, {}, None, None, tunnels, bgp=spoken))]


def test_only_the_plans_blocks_are_believed(stands: SiteLab) -> None:
    """Of what AWS tells, the site takes the blocks of the plan, and gives away none but its own."""
    assert "10.64.0.0/16" in stands.routes
    assert not any(stray in stands.routes for stray in STRAY)
    assert "src 192.168.40.1" in stands.routes
    given = stands.router.ask("-c", "show bgp ipv4 unicast neighbors 169.254.64.1 advertised-routes")
    assert "192.168.40.0/22" in given
    assert "10.121.4.0/22" in given
    assert "10.64.0.0/16" not in given


def test_bgps_routes_use_no_next_hop_objects(stands: SiteLab) -> None:
    """systemd-networkd 255 deletes next-hop objects of others, and the kernel deletes the routes that use them."""
    assert "via" in stands.routes
    assert "nhid" not in stands.routes
