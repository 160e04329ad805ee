"""The address plan over random histories of a fleet file, judged by an oracle that shares no code with it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from ipaddress import IPv4Network
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from bedplate.plan import FleetPlan, PlanFaults, Record, plan_fleet
from bedplate.plan.release import release
from bedplate.spec import Fleet
from tests.support.oracle import faults
from tests.support.sketch import catalog, cluster, laptops, sketch

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
