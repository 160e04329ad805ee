"""Address allocation: where blocks go, that they never move, and what can be released."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from ipaddress import IPv4Network
from time import perf_counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bedplate.errors import InputError
from bedplate.plan import FleetPlan, PlanFaults, Record, allocate_blocks, plan_fleet
from bedplate.plan.allocation import release
from bedplate.plan.space import Space, Span, span_of
from bedplate.spec import Fleet
from tests.testlab.fleets.oracle import faults
from tests.testlab.fleets.sketch import LANS as SITE_LANS
from tests.testlab.fleets.sketch import ZONES as ALL_ZONES
from tests.testlab.fleets.sketch import catalog, cluster, laptops, sketch

EVERYTHING: Mapping[str, Any] = {
    "sites": SITE_LANS,
    "kubernetes": cluster(),
    "vpn": laptops({"region": "us-west-2"}, {"site": "cellar"}),
}


def addresses(fleet: Fleet, record: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the blocks of a fleet as text."""
    recorded = Record({path: IPv4Network(block) for path, block in (record or {}).items()})
    return {path: str(block) for path, block in allocate_blocks(fleet, recorded).items()}


def test_blocks_have_memorable_addresses() -> None:
    """Regions count up from the bottom of the supernet; pods, services and laptops are at round numbers at the top."""
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
def test_a_region_is_split_into_eighths(size: str, edges: tuple[str, str], nodes: tuple[str, str]) -> None:
    """The first eighth holds the edge subnets, each other one the node subnet of a zone, at every size."""
    blocks = addresses(sketch({"us-west-2": ["us-west-2a", "us-west-2b"]}, network={"region_size": size}))

    base = "region/us-west-2/zone/us-west-2"
    assert (blocks[f"{base}a/edge"], blocks[f"{base}b/edge"]) == edges
    assert (blocks[f"{base}a/nodes"], blocks[f"{base}b/nodes"]) == nodes


def test_a_new_zone_gets_the_lowest_free_slot() -> None:
    """A removed zone keeps its slot, so a new zone gets the next one."""
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
def test_every_supernet_has_the_same_layout(supernet: str, pods: str, services: str, pool: str) -> None:
    """Pods end where the last eighth starts; in a small supernet each kind takes a free block."""
    regions = {"us-west-2": ["us-west-2a"]}
    parts: dict[str, Any] = {"kubernetes": cluster(), "vpn": laptops({"region": "us-west-2"})}

    blocks = addresses(sketch(regions, network={"supernet": supernet}, **parts))

    assert (blocks["pods"], blocks["services"], blocks["pool/us-west-2"]) == (pods, services, pool)


def test_tunnels_get_consecutive_30_blocks() -> None:
    """Each site has two tunnels to each region, outside AWS's reserved link-local addresses."""
    blocks = addresses(sketch(sites=SITE_LANS))

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
def test_allocated_blocks_avoid_used_ones(supernet: str, lan: str, block: str) -> None:
    """Blocks never overlap a site's LAN or Docker's network, and the default VPC's block is the last resort."""
    regions = {"us-west-2": ["us-west-2a"]}

    blocks = addresses(sketch(regions, sites={"cellar": lan}, network={"supernet": supernet}))

    assert blocks["region/us-west-2"] == block


def test_a_declared_block_is_used_unchanged() -> None:
    """A declared block may be outside the supernet, and the other regions avoid it."""
    blocks = addresses(sketch(blocks={"us-east-1": "10.64.0.0/16", "eu-north-1": "10.200.0.0/16"}))

    regions = [blocks[f"region/{name}"] for name in ALL_ZONES]
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
def test_a_recorded_block_survives_a_changed_default(path: str, recorded: str, fleet: Fleet) -> None:
    """Only a size in the fleet file can conflict with the lock."""
    assert addresses(fleet, {path: recorded})[path] == recorded


def test_pods_and_services_need_a_cluster() -> None:
    """Pods and services get blocks only if the file has a cluster."""
    assert not {"pods", "services"} & addresses(sketch()).keys()


@pytest.mark.parametrize("supernet", ["0.0.0.0/0", "0.0.0.0/1"])
def test_a_huge_supernet_is_allocated_quickly(supernet: str) -> None:
    """The time does not depend on the number of addresses."""
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
def test_the_first_free_aligned_block_is_found(taken: tuple[str, ...], lowest: str | None, highest: str | None) -> None:
    """The search works from either end, with taken blocks before, across and after the window."""
    within = space(*taken)

    blocks = (within.lowest(26, TEN), within.highest(26, TEN))

    assert blocks == tuple(IPv4Network(block) if block else None for block in (lowest, highest))


def test_adjacent_blocks_are_merged() -> None:
    """Many adjacent blocks are one interval, so that the search skips them in one step."""
    taken = space(*(f"10.{number}.0.0/16" for number in range(256)))

    assert list(taken.gaps(span_of(IPv4Network("8.0.0.0/6")))) == [
        Span(8 << 24, 10 << 24),
        Span(11 << 24, 12 << 24),
    ]


def test_taking_a_block_twice_counts_once() -> None:
    """Addresses in overlapping blocks count once."""
    taken = space("10.0.0.0/25", "10.0.0.0/24", "10.0.0.128/32")

    assert taken.free(ALL) == ALL.size - 256


def test_an_empty_window_has_no_block() -> None:
    """The last eighth of a tiny supernet may be empty."""
    assert space().lowest(32, Span(5, 5)) is None
    assert space().free(Span(5, 4)) == 0


WEST = sketch({"us-west-2": ["us-west-2a", "us-west-2b"]})
BOTH = sketch({"us-west-2": ["us-west-2a", "us-west-2b"], "us-east-1": ["us-east-1a"]}, sites=SITE_LANS)
RECORD = Record(allocate_blocks(BOTH, Record({})))


@pytest.mark.parametrize(
    ("path", "count"),
    [
        ("region/us-east-1", 5),
        ("region/us-east-1/zone/us-east-1a", 2),
        ("tunnel/cellar", 4),
        ("tunnel/cellar/us-east-1/1", 1),
        ("site/cellar", 1),
    ],
)
def test_a_release_includes_all_paths_below(path: str, count: int) -> None:
    """Releasing a region includes its subnets and tunnels; releasing a site's tunnels includes both numbers."""
    after = release(RECORD, path, WEST)

    assert len(after.blocks) == len(RECORD.blocks) - count
    assert not any(kept.startswith(path) for kept in after.blocks)


def test_releasing_a_region_releases_its_tunnels_and_pool() -> None:
    """Its tunnels and its laptop pool are released with it; those of other regions stay."""
    released, kept = ("tunnel/cellar/us-east-1/1", "pool/us-east-1"), ("tunnel/cellar/us-west-2/1", "pool/us-west-2")
    record = Record({**RECORD.blocks, **dict.fromkeys((*released, *kept), IPv4Network("10.99.0.0/22"))})

    after = release(record, "region/us-east-1", WEST)

    assert not set(released) & set(after.blocks)
    assert set(kept) <= set(after.blocks)


@pytest.mark.parametrize("path", ["region/us-west-2", "region/us-west-2/zone/us-west-2b", "region"])
def test_a_block_in_use_cannot_be_released(path: str) -> None:
    """A path is in use if the file has it or a path below it, also for a prefix such as `region`."""
    with pytest.raises(InputError, match="cannot be released"):
        release(RECORD, path, WEST)


def test_an_unknown_path_is_refused() -> None:
    """A partial name releases nothing; the fix lists the paths that can be released."""
    with pytest.raises(InputError, match="has no block region/us-east") as caught:
        release(RECORD, "region/us-east", WEST)

    assert "region/us-east-1, site/cellar, tunnel/cellar/us-east-1/1" in caught.value.fix


def test_an_unknown_path_is_refused_without_releasable_blocks() -> None:
    """If the file uses every recorded block, the fix says so; for a region's name it names the used block."""
    with pytest.raises(InputError, match="us-east-1") as named:
        release(RECORD, "us-east-1", BOTH)
    with pytest.raises(InputError) as caught:
        release(RECORD, "pods", BOTH)

    assert named.value.fix == "region/us-east-1 is in use: remove it from the fleet file first"
    assert caught.value.fix == "no block in the lock can be released"


@pytest.mark.parametrize(
    ("path", "before", "after"),
    [
        ("pods", sketch(kubernetes=cluster(pods="/13")), sketch(kubernetes=cluster(pods="/14"))),
        ("site/cellar", sketch(sites=SITE_LANS), sketch(sites={"cellar": "192.168.0.0/24"})),
        ("region/us-west-2", sketch(), sketch(blocks={"us-west-2": "10.99.0.0/16"})),
    ],
)
def test_a_release_allows_renumbering(path: str, before: Fleet, after: Fleet) -> None:
    """A block that the file changes can be released, and gets its new value."""
    old = Record(allocate_blocks(before, Record({})))

    new = allocate_blocks(after, release(old, path, after))

    assert new[path] != old.blocks[path]


REGIONS = ("us-west-2", "us-east-1", "eu-north-1", "ap-south-1", "sa-east-1")
LANS = {"cellar": "192.168.40.0/22", "attic": "10.70.0.0/16", "barn": "172.16.0.0/24"}
SUPERNETS = ("10.64.0.0/10", "10.64.0.0/13", "10.70.0.0/15", "172.16.0.0/12", "10.64.0.0/17", "0.0.0.0/0")
# A full supernet, a LAN on a recorded block and an eighth zone may be refused; any other fault is a bug.
ALLOWED = {"E230", "E232", "E235"}
# Eight letters: one zone more than a region has slots.
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
    """A fleet file after a history of edits."""

    zones: tuple[tuple[str, str], ...] = (("us-west-2", "a"),)
    sites: tuple[str, ...] = ()
    pools: tuple[str, ...] = ()
    clusters: tuple[str, ...] = ()

    def toggled(self, field: str, item: object) -> "File":
        """Return the file without an item, or with a missing item inserted first."""
        items = getattr(self, field)
        rest = tuple(kept for kept in items if kept != item)
        toggled = rest if len(rest) < len(items) else (item, *items)
        return replace(self, **{field: toggled}) if toggled or field != "zones" else self

    def fleet(self, network: Mapping[str, str]) -> Fleet:
        """Return the file as a spec."""
        regions: dict[str, list[str]] = {}
        for region, letter in self.zones:
            regions.setdefault(region, []).append(region + letter)
        gateways = [{"region" if place in REGIONS else "site": place} for place in self.pools]
        parts: dict[str, Any] = {"vpn": laptops(*gateways)} if gateways else {}
        parts |= {"kubernetes": cluster()} if self.clusters else {}
        return sketch(regions, sites={name: LANS[name] for name in self.sites}, network=network, **parts)


def texts(blocks: Mapping[str, IPv4Network]) -> dict[str, str]:
    """Return blocks as text, for the oracle."""
    return {path: str(block) for path, block in blocks.items()}


def attempt(fleet: Fleet, record: Record) -> FleetPlan | None:
    """Return the plan, or None for an allowed fault."""
    try:
        return plan_fleet(fleet, record, catalog())
    except PlanFaults as caught:
        if {fault.code for fault in caught.faults} <= ALLOWED:
            return None
        raise


def plans(history: list[tuple[str, Any]], network: Mapping[str, str]) -> Iterator[tuple[Fleet, FleetPlan]]:
    """Yield the file and the plan after each accepted edit, with the record updated each time."""
    file, record = File(), Record({})
    for edit in [None, *history]:
        edited = file.toggled(*edit) if edit else file
        fleet = edited.fleet(network)
        plan = attempt(fleet, record)
        if plan is not None:
            yield fleet, plan
            file, record = edited, plan.recorded()


@settings(max_examples=400, deadline=None)
@given(HISTORIES, st.sampled_from(SUPERNETS), st.integers(16, 20))
def test_no_edit_moves_or_overlaps_a_block(history: list[tuple[str, Any]], supernet: str, size: int) -> None:
    """For any history of edits, blocks never overlap, stay inside the supernet, and never move."""
    for _, plan in plans(history, {"supernet": supernet, "region_size": f"/{size}"}):
        assert faults(texts(plan.blocks), texts(plan.record.blocks), supernet) == []


@settings(max_examples=50, deadline=None)
@given(HISTORIES)
def test_released_blocks_can_be_reused(history: list[tuple[str, Any]]) -> None:
    """After all unused blocks are released, the record has exactly the blocks of the file."""
    *_, (fleet, plan) = plans(history, {})
    record = plan.recorded()

    for path in plan.retired:
        record = release(record, path, fleet) if path in record.blocks else record

    assert plan_fleet(fleet, record, catalog()).blocks == plan.blocks == record.blocks


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 5), st.integers(16, 20), st.integers(13, 24), st.integers(13, 24), st.integers(14, 28))
def test_a_fleet_is_refused_only_if_it_is_too_large(
    count: int, region: int, pods: int, services: int, pool: int
) -> None:
    """In an empty supernet, a fleet fits whenever the sum of its blocks does."""
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
def test_the_order_of_the_file_does_not_matter(order: list[str]) -> None:
    """A recorded fleet has the same blocks in any order of regions."""
    first = plan_fleet(sketch({name: [f"{name}a"] for name in REGIONS}), Record({}), catalog())

    again = plan_fleet(sketch({name: [f"{name}a"] for name in order}), first.recorded(), catalog())

    assert again.blocks == first.blocks


CORRECT = {
    "region/us-west-2": "10.64.0.0/16",
    "region/us-west-2/zone/us-west-2a/edge": "10.64.0.0/24",
    "region/us-west-2/zone/us-west-2a/nodes": "10.64.32.0/19",
    "site/cellar": "192.168.40.0/22",
    "tunnel/cellar/us-west-2/1": "169.254.64.0/30",
}


def test_the_oracle_accepts_a_correct_plan() -> None:
    """The test oracle finds no fault in a correct plan."""
    assert faults(CORRECT, CORRECT, "10.64.0.0/10") == []


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
def test_the_oracle_finds_a_seeded_fault(path: str, block: str, finding: str) -> None:
    """The test oracle names each kind of wrong block."""
    findings = faults({**CORRECT, path: block}, CORRECT, "10.64.0.0/10")

    assert any(all(word in text for word in finding.split()) for text in findings)
