"""Where blocks come to lie, and that they stay there."""

from collections.abc import Mapping
from ipaddress import IPv4Network
from time import perf_counter
from typing import Any

import pytest

from bedplate.plan import Record, allot
from bedplate.spec import Fleet
from tests.support.sketch import LANS, ZONES, cluster, laptops, sketch

EVERYTHING: Mapping[str, Any] = {
    "sites": LANS,
    "kubernetes": cluster(),
    "vpn": laptops({"region": "us-west-2"}, {"site": "cellar"}),
}


def addresses(fleet: Fleet, record: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the blocks of a fleet as text."""
    known = Record({path: IPv4Network(block) for path, block in (record or {}).items()})
    return {path: str(block) for path, block in allot(fleet, known).items()}


def test_a_fleet_gets_addresses_that_an_operator_remembers() -> None:
    """Regions count up from the bottom; pods, services and laptops stand at round numbers at the top."""
    blocks = addresses(sketch(**EVERYTHING))

    assert {path: block for path, block in blocks.items() if "/zone/" not in path and "tunnel" not in path} == {
        "region/us-west-2": "10.64.0.0/16",
        "region/us-east-1": "10.65.0.0/16",
        "region/eu-north-1": "10.66.0.0/16",
        "site/cellar": "192.168.40.0/22",
        "pods": "10.112.0.0/13",
        "services": "10.120.0.0/20",
        "pool/us-west-2": "10.121.0.0/22",
        "pool/cellar": "10.121.4.0/22",
    }


@pytest.mark.parametrize(
    ("size", "edges", "nodes"),
    [
        ("/16", ("10.64.0.0/24", "10.64.1.0/24"), ("10.64.32.0/19", "10.64.64.0/19")),
        ("/18", ("10.64.0.0/26", "10.64.0.64/26"), ("10.64.8.0/21", "10.64.16.0/21")),
        ("/20", ("10.64.0.0/28", "10.64.0.16/28"), ("10.64.2.0/23", "10.64.4.0/23")),
    ],
)
def test_a_region_is_eight_parts(size: str, edges: tuple[str, str], nodes: tuple[str, str]) -> None:
    """The first eighth holds the edges, each other one zone's nodes, at every size."""
    blocks = addresses(sketch({"us-west-2": ["us-west-2a", "us-west-2b"]}, network={"region_size": size}))

    base = "region/us-west-2/zone/us-west-2"
    assert (blocks[f"{base}a/edge"], blocks[f"{base}b/edge"]) == edges
    assert (blocks[f"{base}a/nodes"], blocks[f"{base}b/nodes"]) == nodes


def test_a_new_zone_takes_the_lowest_free_place() -> None:
    """A zone that is gone from the file keeps its place, so a new one goes behind it."""
    base = "region/us-west-2/zone/us-west-2"
    before = addresses(sketch({"us-west-2": ["us-west-2a", "us-west-2b"]}))

    after = addresses(sketch({"us-west-2": ["us-west-2d", "us-west-2b"]}), before)

    assert after[f"{base}d/edge"] == "10.64.2.0/24"
    assert after[f"{base}b/nodes"] == before[f"{base}b/nodes"]


@pytest.mark.parametrize(
    ("supernet", "pods", "services", "pool"),
    [
        ("10.0.0.0/8", "10.216.0.0/13", "10.224.0.0/20", "10.228.0.0/22"),
        ("10.64.0.0/12", "10.76.0.0/15", "10.78.0.0/20", "10.78.64.0/22"),
        ("10.64.0.0/15", "10.65.128.0/18", "10.65.192.0/20", "10.65.208.0/22"),
    ],
)
def test_every_supernet_has_the_same_picture(supernet: str, pods: str, services: str, pool: str) -> None:
    """Pods end where the last eighth starts; in a small supernet each kind takes what is free."""
    one = {"us-west-2": ["us-west-2a"]}
    parts: dict[str, Any] = {"kubernetes": cluster(), "vpn": laptops({"region": "us-west-2"})}

    blocks = addresses(sketch(one, network={"supernet": supernet}, **parts))

    assert (blocks["pods"], blocks["services"], blocks["pool/us-west-2"]) == (pods, services, pool)


def test_tunnels_count_up_in_thirties() -> None:
    """Two tunnels a site and region, clear of the link-local addresses that AWS keeps."""
    blocks = addresses(sketch(sites=LANS))

    tunnels = [block for path, block in blocks.items() if path.startswith("tunnel/")]
    assert tunnels == [f"169.254.64.{number * 4}/30" for number in range(6)]


@pytest.mark.parametrize(
    ("supernet", "lan", "block"),
    [
        ("10.64.0.0/10", "10.64.3.0/24", "10.65.0.0/16"),
        ("172.16.0.0/12", "172.16.0.0/24", "172.18.0.0/16"),
        ("172.30.0.0/15", "172.30.0.0/24", "172.31.0.0/16"),
    ],
)
def test_what_is_allotted_goes_around_what_others_use(supernet: str, lan: str, block: str) -> None:
    """A site's LAN and docker's network are never touched, the default VPC's block only as a last resort."""
    one = {"us-west-2": ["us-west-2a"]}

    blocks = addresses(sketch(one, sites={"cellar": lan}, network={"supernet": supernet}))

    assert blocks["region/us-west-2"] == block


def test_a_declared_block_is_taken_as_it_is() -> None:
    """It may lie outside the supernet, and the other regions go around it."""
    blocks = addresses(sketch(blocks={"us-east-1": "10.64.0.0/16", "eu-north-1": "10.200.0.0/16"}))

    regions = [blocks[f"region/{name}"] for name in ZONES]
    assert regions == ["10.65.0.0/16", "10.64.0.0/16", "10.200.0.0/16"]


@pytest.mark.parametrize(
    ("path", "recorded", "fleet"),
    [
        ("region/us-west-2", "10.99.0.0/18", sketch(**EVERYTHING)),
        ("pods", "10.96.0.0/14", sketch(**EVERYTHING)),
        ("services", "10.120.0.0/22", sketch(**EVERYTHING)),
        ("pool/cellar", "10.122.0.0/24", sketch(**EVERYTHING)),
        ("services", "10.120.0.0/22", sketch(kubernetes=cluster(services="/22"))),
    ],
)
def test_a_recorded_block_outlives_a_changed_default(path: str, recorded: str, fleet: Fleet) -> None:
    """Only a size that the file states can contradict the lock."""
    assert addresses(fleet, {path: recorded})[path] == recorded


def test_without_kubernetes_there_are_no_pods() -> None:
    """Pods and services are allotted only where the file asks for a cluster."""
    assert not {"pods", "services"} & addresses(sketch()).keys()


@pytest.mark.parametrize("supernet", ["0.0.0.0/0", "0.0.0.0/1"])
def test_a_huge_supernet_costs_nothing(supernet: str) -> None:
    """Addresses are never counted one by one."""
    fleet = sketch(network={"supernet": supernet}, **EVERYTHING)

    start = perf_counter()
    addresses(fleet)

    assert perf_counter() - start < 0.5
