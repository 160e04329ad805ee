"""Where blocks come to lie, and that they stay there."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from ipaddress import IPv4Network
from time import perf_counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bedplate.errors import InputError
from bedplate.plan import FleetPlan, PlanFaults, Record, allot, plan_fleet
from bedplate.plan.allocation import release
from bedplate.plan.space import Space, Span, span_of
from bedplate.spec import Fleet
from tests.testlab.fleets.oracle import faults
from tests.testlab.fleets.sketch import LANS as SKETCH_LANS
from tests.testlab.fleets.sketch import ZONES as SKETCH_ZONES
from tests.testlab.fleets.sketch import catalog, cluster, laptops, sketch

EVERYTHING: Mapping[str, Any] = {
    "sites": SKETCH_LANS,
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
    blocks = addresses(sketch(sites=SKETCH_LANS))

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

    regions = [blocks[f"region/{name}"] for name in SKETCH_ZONES]
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


ALL = span_of(IPv4Network("0.0.0.0/0"))
TEN = span_of(IPv4Network("10.0.0.0/24"))


def space(*taken: str) -> Space:
    """Return a space with those blocks taken."""
    return Space(IPv4Network(block) for block in taken)


@pytest.mark.parametrize(
    ("taken", "lowest", "highest"),
    [
        ((), "10.0.0.0/26", "10.0.0.192/26"),
        (("10.0.0.0/26",), "10.0.0.64/26", "10.0.0.192/26"),
        (("10.0.0.1/32", "10.0.0.255/32"), "10.0.0.64/26", "10.0.0.128/26"),
        (("10.0.0.0/26", "10.0.0.128/25"), "10.0.0.64/26", "10.0.0.64/26"),
        (("0.0.0.0/5", "10.0.0.64/27", "10.0.1.0/24"), "10.0.0.0/26", "10.0.0.192/26"),
        (("10.0.0.0/8",), None, None),
        (("10.0.0.32/32", "10.0.0.96/32", "10.0.0.160/32", "10.0.0.224/32"), None, None),
    ],
)
def test_the_first_aligned_block_that_is_free_is_found(
    taken: tuple[str, ...], lowest: str | None, highest: str | None
) -> None:
    """From either end, whatever lies before, across or behind the window."""
    within = space(*taken)

    found = (within.lowest(26, TEN), within.highest(26, TEN))

    assert found == tuple(IPv4Network(block) if block else None for block in (lowest, highest))


def test_neighbours_become_one_interval() -> None:
    """Many blocks in a row are one stretch, so looking past them costs one step."""
    taken = space(*(f"10.{number}.0.0/16" for number in range(256)))

    assert list(taken.gaps(span_of(IPv4Network("8.0.0.0/6")))) == [
        Span(8 << 24, 10 << 24),
        Span(11 << 24, 12 << 24),
    ]


def test_taking_twice_is_taking_once() -> None:
    """Overlapping blocks count once."""
    taken = space("10.0.0.0/25", "10.0.0.0/24", "10.0.0.128/32")

    assert taken.free(ALL) == ALL.size - 256


def test_an_empty_window_holds_nothing() -> None:
    """The last eighth of a tiny supernet may be empty."""
    assert space().lowest(32, Span(5, 5)) is None
    assert space().free(Span(5, 4)) == 0


WEST = sketch({"us-west-2": ["us-west-2a", "us-west-2b"]})
BOTH = sketch({"us-west-2": ["us-west-2a", "us-west-2b"], "us-east-1": ["us-east-1a"]}, sites=SKETCH_LANS)
RECORD = Record(allot(BOTH, Record({})))


@pytest.mark.parametrize(
    ("path", "gone"),
    [
        ("region/us-east-1", 5),
        ("region/us-east-1/zone/us-east-1a", 2),
        ("tunnel/cellar", 4),
        ("tunnel/cellar/us-east-1/1", 1),
        ("site/cellar", 1),
    ],
)
def test_what_is_retired_goes_with_all_below_it(path: str, gone: int) -> None:
    """A region takes its subnets and tunnels along, a site's tunnels their numbers."""
    after = release(RECORD, path, WEST)

    assert len(after.blocks) == len(RECORD.blocks) - gone
    assert not any(known.startswith(path) for known in after.blocks)


def test_a_region_takes_along_what_leads_to_it() -> None:
    """Its tunnels and its laptop pool cannot stand without it; those of other regions stay."""
    gone, kept = ("tunnel/cellar/us-east-1/1", "pool/us-east-1"), ("tunnel/cellar/us-west-2/1", "pool/us-west-2")
    record = Record({**RECORD.blocks, **dict.fromkeys((*gone, *kept), IPv4Network("10.99.0.0/22"))})

    after = release(record, "region/us-east-1", WEST)

    assert not set(gone) & set(after.blocks)
    assert set(kept) <= set(after.blocks)


@pytest.mark.parametrize("path", ["region/us-west-2", "region/us-west-2/zone/us-west-2b", "region"])
def test_a_block_in_use_is_kept(path: str) -> None:
    """Nothing below the path may be in the file; a name that is only a part of a path counts as well."""
    with pytest.raises(InputError, match="cannot be released"):
        release(RECORD, path, WEST)


def test_an_unknown_path_is_refused_with_those_that_could_go() -> None:
    """A slip of the pen releases nothing; half a name is no path."""
    with pytest.raises(InputError, match="holds no region/us-east") as refusal:
        release(RECORD, "region/us-east", WEST)

    assert "region/us-east-1, site/cellar, tunnel/cellar/us-east-1/1" in refusal.value.fix


def test_where_nothing_can_go_the_refusal_says_so() -> None:
    """A record that the file asks for whole has nothing to give."""
    with pytest.raises(InputError) as refusal:
        release(RECORD, "pods", BOTH)

    assert refusal.value.fix == "nothing: no block in the lock can be released"


@pytest.mark.parametrize(
    ("path", "before", "after"),
    [
        ("pods", sketch(kubernetes=cluster(pods="/13")), sketch(kubernetes=cluster(pods="/14"))),
        ("site/cellar", sketch(sites=SKETCH_LANS), sketch(sites={"cellar": "192.168.0.0/24"})),
        ("region/us-west-2", sketch(), sketch(blocks={"us-west-2": "10.99.0.0/16"})),
    ],
)
def test_a_release_is_how_to_renumber_on_purpose(path: str, before: Fleet, after: Fleet) -> None:
    """A block that the file asks to be another may go, and comes back as the file has it."""
    old = Record(allot(before, Record({})))

    new = allot(after, release(old, path, after))

    assert new[path] != old.blocks[path]


REGIONS = ("us-west-2", "us-east-1", "eu-north-1", "ap-south-1", "sa-east-1")
LANS = {"cellar": "192.168.40.0/22", "attic": "10.70.0.0/16", "barn": "172.16.0.0/24"}
SUPERNETS = ("10.64.0.0/10", "10.64.0.0/13", "10.70.0.0/15", "172.16.0.0/12", "10.64.0.0/17", "0.0.0.0/0")
# A full supernet, a LAN on a recorded block and an eighth zone may be refused; any other refusal is a defect.
LEGAL = {"E230", "E232", "E235"}
# Eight letters: one zone more than a region has places.
ZONES = st.tuples(st.sampled_from(REGIONS), st.sampled_from("abcdefgh"))
EDITS = st.one_of(
    st.tuples(st.just("zones"), ZONES),
    st.tuples(st.just("sites"), st.sampled_from(sorted(LANS))),
    st.tuples(st.just("pools"), st.sampled_from((*REGIONS, *LANS))),
    st.tuples(st.just("clusters"), st.just("lab")),
)
HISTORIES = st.lists(EDITS, min_size=1, max_size=40)


@dataclass(frozen=True)
class File:
    """A fleet file as a history of edits leaves it."""

    zones: tuple[tuple[str, str], ...] = (("us-west-2", "a"),)
    sites: tuple[str, ...] = ()
    pools: tuple[str, ...] = ()
    clusters: tuple[str, ...] = ()

    def toggled(self, field: str, item: object) -> "File":
        """Return the file without an item that it has, or with it put first, where it would move the rest."""
        items = getattr(self, field)
        rest = tuple(kept for kept in items if kept != item)
        toggled = rest if len(rest) < len(items) else (item, *items)
        return replace(self, **{field: toggled}) if toggled or field != "zones" else self

    def fleet(self, network: Mapping[str, str]) -> Fleet:
        """Return it as the spec has it."""
        regions: dict[str, list[str]] = {}
        for region, letter in self.zones:
            regions.setdefault(region, []).append(region + letter)
        gateways = [{"region" if place in REGIONS else "site": place} for place in self.pools]
        parts: dict[str, Any] = {"vpn": laptops(*gateways)} if gateways else {}
        parts |= {"kubernetes": cluster()} if self.clusters else {}
        return sketch(regions, sites={name: LANS[name] for name in self.sites}, network=network, **parts)


def texts(blocks: Mapping[str, IPv4Network]) -> dict[str, str]:
    """Return blocks as the oracle reads them."""
    return {path: str(block) for path, block in blocks.items()}


def attempt(fleet: Fleet, record: Record) -> FleetPlan | None:
    """Return the plan, or None where refusing is legal."""
    try:
        return plan_fleet(fleet, record, catalog())
    except PlanFaults as refusal:
        if {fault.code for fault in refusal.faults} <= LEGAL:
            return None
        raise


def plans(history: list[tuple[str, Any]], network: Mapping[str, str]) -> Iterator[tuple[Fleet, FleetPlan]]:
    """Yield file and plan after each edit that is not refused, the record carried along."""
    file, record = File(), Record({})
    for edit in [None, *history]:
        tried = file.toggled(*edit) if edit else file
        fleet = tried.fleet(network)
        plan = attempt(fleet, record)
        if plan is not None:
            yield fleet, plan
            file, record = tried, plan.recorded()


@settings(max_examples=400, deadline=None)
@given(HISTORIES, st.sampled_from(SUPERNETS), st.integers(16, 20))
def test_no_edit_moves_a_block_or_lets_two_touch(history: list[tuple[str, Any]], supernet: str, size: int) -> None:
    """Whatever is added, removed and put back, all blocks stay apart, inside, and where they were."""
    for _, plan in plans(history, {"supernet": supernet, "region_size": f"/{size}"}):
        assert faults(texts(plan.blocks), texts(plan.record.blocks), supernet) == []


@settings(max_examples=50, deadline=None)
@given(HISTORIES)
def test_a_released_block_may_be_allotted_anew(history: list[tuple[str, Any]]) -> None:
    """Once all that is gone from the file is released, the record is what the file asks for and no more."""
    *_, (fleet, plan) = plans(history, {})
    record = plan.recorded()

    for path in plan.retired:
        record = release(record, path, fleet) if path in record.blocks else record

    assert plan_fleet(fleet, record, catalog()).blocks == plan.blocks == record.blocks


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 5), st.integers(16, 20), st.integers(13, 24), st.integers(13, 24), st.integers(14, 28))
def test_a_fleet_is_refused_only_when_it_is_too_large(
    count: int, region: int, pods: int, services: int, pool: int
) -> None:
    """Aligned blocks of powers of two fit whenever their sum does; so does every fleet in an empty supernet."""
    names = REGIONS[:count]
    fleet = sketch(
        {name: [f"{name}a"] for name in names},
        network={"supernet": "10.64.0.0/13", "region_size": f"/{region}"},
        kubernetes=cluster(pods=f"/{pods}", services=f"/{services}"),
        vpn=laptops(*({"region": name} for name in names), pool=f"/{pool}"),
    )

    plan = attempt(fleet, Record({}))

    needed = sum(2**-prefix for prefix in (pods, services, *[region, pool] * count))
    assert (plan is not None) == (needed <= 2**-13)


@given(st.permutations(REGIONS))
def test_the_order_of_the_file_moves_nothing(order: list[str]) -> None:
    """A recorded fleet has the same blocks however the file lists its regions."""
    first = plan_fleet(sketch({name: [f"{name}a"] for name in REGIONS}), Record({}), catalog())

    again = plan_fleet(sketch({name: [f"{name}a"] for name in order}), first.recorded(), catalog())

    assert again.blocks == first.blocks


GOOD = {
    "region/us-west-2": "10.64.0.0/16",
    "region/us-west-2/zone/us-west-2a/edge": "10.64.0.0/24",
    "region/us-west-2/zone/us-west-2a/nodes": "10.64.32.0/19",
    "site/cellar": "192.168.40.0/22",
    "tunnel/cellar/us-west-2/1": "169.254.64.0/30",
}


def test_a_good_plan_has_no_fault() -> None:
    """What stands apart, inside and where it was recorded is right."""
    assert faults(GOOD, GOOD, "10.64.0.0/10") == []


@pytest.mark.parametrize(
    ("path", "block", "finding"),
    [
        ("region/us-west-2", "10.65.0.0/16", "region/us-west-2 moved"),
        ("pods", "10.64.128.0/18", "region/us-west-2 overlaps pods"),
        ("pods", "192.168.0.0/16", "site/cellar overlaps pods"),
        ("services", "172.17.16.0/20", "services overlaps docker"),
        ("pods", "10.128.0.0/13", "pods lies outside"),
        ("region/us-west-2/zone/us-west-2b/edge", "10.64.0.0/25", "edge overlaps"),
        ("region/us-west-2/zone/us-west-2b/edge", "10.65.0.0/24", "edge lies outside"),
        ("tunnel/cellar/us-west-2/2", "169.254.169.252/30", "2 lies outside"),
    ],
)
def test_a_planted_fault_is_found(path: str, block: str, finding: str) -> None:
    """Each kind of wrong block is told by name."""
    findings = faults({**GOOD, path: block}, GOOD, "10.64.0.0/10")

    assert any(all(word in found for word in finding.split()) for found in findings)
