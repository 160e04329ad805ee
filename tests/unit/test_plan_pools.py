"""Rungs become pools."""

import gzip
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import moto.ec2
import pytest

from bedplate.catalog import Catalog, InstanceFacts, load_catalog
from bedplate.plan import Record, plan_fleet
from bedplate.plan.pools import (
    PLAIN,
    Adapter,
    Interface,
    Likeness,
    Offer,
    PoolPlan,
    Sizes,
    Tenure,
    Volume,
    addresses_per_node,
    interfaces,
    likeness,
    timetable,
    weekdays,
)
from bedplate.plan.registration import (
    INSTANCE_TYPE,
    ZONE,
    Registration,
    from_zero_tags,
    label_value,
    pool_registration,
    registration,
)
from bedplate.spec.groups import Fabric, Market
from bedplate.spec.sites import Use
from tests.testlab.fleets.sketch import catalog, group, sketch

WEST = {"region": "us-west-2"}
WEST_B = {**WEST, "zone": "us-west-2b"}
RESERVED = {**WEST_B, "market": "reservation", "reservation": "cr-0123456789abcdef0"}
BLOCK = {**WEST_B, "market": "capacity-block", "reservation": "cr-0123456789abcdef1"}
TWO_ZONES = catalog({"g6.xlarge": {"us-west-2": "bcd"}, "g5.xlarge": {"us-west-2": "a"}, "p5.48xlarge": {}})


def pools(*ladder: Mapping[str, object], known: Catalog = TWO_ZONES, **parts: Any) -> tuple[PoolPlan, ...]:  # noqa: ANN401  raw values
    """Return the pools of one group over that ladder."""
    return plan_fleet(sketch(groups={"gpu": group(*ladder, **parts)}), Record({}), known).pools


@pytest.mark.parametrize(
    ("rung", "name"),
    [
        (WEST, "gpu-us-west-2"),
        ({**WEST, "market": "spot"}, "gpu-us-west-2-spot"),
        (WEST_B, "gpu-us-west-2b"),
        (RESERVED, "gpu-us-west-2b-reservation-cr-0123456789abcdef0"),
        (BLOCK, "gpu-us-west-2b-block-cr-0123456789abcdef1"),
    ],
)
def test_a_pool_is_named_by_what_it_is(rung: dict[str, str], name: str) -> None:
    """Place, market and reservation are in the name, the rung's number is not."""
    (pool,) = pools(rung)

    assert pool.name == name


def test_an_inserted_rung_renames_nothing() -> None:
    """Pools below it keep their names, hence their machines."""
    before = pools(WEST, {"region": "us-east-1"})

    after = pools(RESERVED, WEST, {"region": "us-east-1"})

    assert {pool.name for pool in before} < {pool.name for pool in after}


@pytest.mark.parametrize(
    ("types", "zones"),
    [
        (["g6.xlarge"], "bc"),
        (["g6.xlarge", "g5.xlarge"], "abc"),
        (["p5.48xlarge"], ""),
        (["p9.48xlarge"], "abc"),
        (["p9.48xlarge", "p5.48xlarge"], "abc"),
    ],
)
def test_a_pool_spans_the_zones_that_offer_a_type(types: list[str], zones: str) -> None:
    """Those of the file that offer at least one; every one where the catalogue does not know the type."""
    (pool,) = pools(WEST, types=types)

    assert pool.zones == tuple(f"us-west-2{letter}" for letter in zones)


def test_the_fabric_needs_one_zone_a_pool() -> None:
    """A rung over a region becomes a pool in each zone that offers the type, a zone's rung stays one pool."""
    found = pools(RESERVED, WEST, fabric="efa")

    assert [(pool.name, pool.zones) for pool in found] == [
        ("gpu-us-west-2b-reservation-cr-0123456789abcdef0", ("us-west-2b",)),
        ("gpu-us-west-2b", ("us-west-2b",)),
        ("gpu-us-west-2c", ("us-west-2c",)),
    ]


def test_one_zone_named_twice_is_one_pool() -> None:
    """`2b first, then anywhere` keeps its order and makes no second pool in 2b."""
    found = pools({**WEST, "zone": "us-west-2c"}, WEST, fabric="efa")

    assert [pool.name for pool in found] == ["gpu-us-west-2c", "gpu-us-west-2b"]


def test_the_minimum_is_in_the_first_pool_alone() -> None:
    """The group's minimum is started once; every pool may grow to the group's maximum."""
    found = pools(RESERVED, WEST, fabric="efa", nodes={"min": 2, "max": 9})

    assert [(pool.min, pool.max) for pool in found] == [(2, 9), (0, 9), (0, 9)]


def test_a_pool_holds_no_more_than_its_reservation() -> None:
    """AWS starts no machine beyond it: the ladder's next rung does."""
    reserved, rest = pools({**RESERVED, "reserved": 3}, WEST)

    assert (reserved.max, rest.max) == (3, 4)


def test_of_two_rungs_of_one_pool_the_first_counts() -> None:
    """A zone's own price on a fabric stands, whatever its region's is."""
    spot, dearer = {"market": "spot", "max_price": 5.0}, {"market": "spot", "max_price": 9.0}

    found = pools({**WEST_B, **spot}, {**WEST, **dearer}, types=["g6.xlarge"], fabric="efa")

    assert {pool.zones: pool.offer.max_price for pool in found} == {("us-west-2b",): 5.0, ("us-west-2c",): 9.0}


TYPES = load_catalog().types
RECORDED = Path(moto.ec2.__file__).parent / "resources" / "instance_types.json.gz"
EFA, ENA, ONLY = Adapter.EFA, Adapter.ENA, Adapter.EFA_ONLY


@cache
def _cards() -> dict[str, list[dict[str, Any]]]:
    """Return the network cards of each type as AWS described them, which the layout was not made from."""
    types = json.loads(gzip.decompress(RECORDED.read_bytes()))
    return {name: one["NetworkInfo"]["NetworkCards"] for name, one in types.items()}


def _layout(name: str) -> tuple[Interface, ...]:
    return interfaces(TYPES[name], Fabric.EFA)


def _wrong(name: str) -> list[str]:
    """Return which of AWS's rules the layout of a type breaks."""
    layout, facts = _layout(name), TYPES[name]
    fabric = [one for one in layout if one.adapter in (EFA, ONLY)]
    places = Counter((one.card, one.device) for one in layout)
    on_card = Counter(one.card for one in layout)
    room = dict(enumerate(facts.interfaces_per_card)) or dict.fromkeys(range(max(facts.efa, 1)), 1)
    rules = {
        "the primary interface is first": (layout[0].card, layout[0].device) == (0, 0),
        "the primary interface bears IP": layout[0].adapter in (ENA, EFA),
        "one interface bears the only address": sum(one.adapter in (ENA, EFA) for one in layout) == 1,
        "no place is taken twice": max(places.values()) == 1,
        "no card holds more than it may": all(on_card[card] <= room.get(card, 0) for card in on_card),
        "places of a card are taken in order": all(one.device < on_card[one.card] for one in layout),
        "the type has as many EFAs as it may": len(fabric) == facts.efa,
        "one EFA a card": len({one.card for one in fabric}) == len(fabric),
    }
    return [rule for rule, is_kept in rules.items() if not is_kept]


def test_every_type_keeps_the_rules_of_aws() -> None:
    """Each type of the catalogue, on the fabric where it has one, breaks none of them."""
    broken = {name: wrong for name in TYPES if (wrong := _wrong(name))}

    assert broken == {}
    assert sum(TYPES[name].efa > 0 for name in TYPES) > 250


def test_every_interface_is_one_that_the_card_can_do() -> None:
    """AWS's own description of each type allows what is asked of each of its cards."""
    refused = {
        (name, one)
        for name in TYPES.keys() & _cards().keys()
        for one in _layout(name)
        if one.card >= len(_cards()[name])
        or one.adapter not in _cards()[name][one.card]["InterfaceTypes"]
        or one.device >= _cards()[name][one.card]["MaximumNetworkInterfaces"]
    }

    assert refused == set()


@pytest.mark.parametrize(
    ("name", "layout"),
    [
        ("g5.12xlarge", [(0, 0, EFA)]),
        ("g6e.24xlarge", [(0, 0, ENA), (0, 1, ONLY), (1, 0, ONLY)]),
        ("p4d.24xlarge", [(0, 0, ENA), (0, 1, ONLY), (1, 0, ONLY), (2, 0, ONLY), (3, 0, ONLY)]),
        ("p5.48xlarge", [(0, 0, ENA), (0, 1, ONLY), *((card, 0, ONLY) for card in range(1, 32))]),
        ("p6-b300.48xlarge", [(0, 0, ENA), *((card, 0, ONLY) for card in range(1, 17))]),
        ("hpc6id.32xlarge", [(0, 0, EFA), (1, 0, ONLY)]),
        ("m7i.4xlarge", [(0, 0, ENA)]),
    ],
)
def test_the_layouts_that_people_know(name: str, layout: list[tuple[int, int, Adapter]]) -> None:
    """Types of each form, as AWS's guide lays them out."""
    assert [(one.card, one.device, one.adapter) for one in _layout(name)] == layout


@pytest.mark.parametrize("name", ["p5.48xlarge", "m7i.4xlarge"])
def test_without_a_fabric_there_is_one_plain_interface(name: str) -> None:
    """Cards that nobody asked for are left alone."""
    assert interfaces(TYPES[name], None) == (PLAIN,)


def test_a_type_newer_than_the_catalogue_gets_one_interface_for_both() -> None:
    """It reaches the fabric, if by one card."""
    assert interfaces(None, Fabric.EFA) == (Interface(0, 0, EFA),)


@pytest.mark.parametrize("fabric", [None, Fabric.EFA])
def test_a_machine_takes_one_address(fabric: Fabric | None) -> None:
    """However many cards it has: an interface for the fabric alone takes none."""
    assert {addresses_per_node(facts, fabric) for facts in (*TYPES.values(), None)} == {1}


def test_more_efas_than_cards_are_never_asked_for() -> None:
    """Where the facts contradict each other, no card is asked for that nobody stated."""
    odd = InstanceFacts("z9.large", "x86_64", 2, 4096, interfaces_per_card=(2, 2), efa=4)

    assert {one.card for one in interfaces(odd, Fabric.EFA)} == {0, 1}


ENDS = datetime(2099, 3, 1, 11, 30, tzinfo=UTC)


def pool(**parts: Any) -> PoolPlan:  # noqa: ANN401  raw values
    """Return the one pool of a group."""
    fleet = sketch(groups={"gpu": group({"region": "us-west-2"}, **parts)})
    return plan_fleet(fleet, Record({}), load_catalog()).pools[0]


@pytest.mark.parametrize(
    ("words", "days"),
    [
        ("MON-FRI", (1, 2, 3, 4, 5)),
        ("FRI-MON", (0, 1, 5, 6)),
        ("SUN", (0,)),
        ("THU,MON", (1, 4)),
        ("SUN-SAT", (0, 1, 2, 3, 4, 5, 6)),
    ],
)
def test_days_are_counted_as_cron_does(words: str, days: tuple[int, ...]) -> None:
    """From Sunday; a range over the weekend is a list."""
    assert weekdays(words) == days


def test_most_pools_know_no_clock() -> None:
    """Without hours, block or last day nothing happens, and `permanent` says just that."""
    assert timetable(pool()) == ()
    assert timetable(pool(expires="permanent")) == ()


def test_a_morning_brings_back_the_minimum() -> None:
    """An evening ends all machines; how many there may be stays, for somebody who works late."""
    start, stop = timetable(pool(schedule={"start": "07:00", "stop": "20:00"}))

    assert (start.name, start.sizes, start.cron) == ("start", Sizes(min=1), "0 7 * * 1,2,3,4,5")
    assert (stop.name, stop.sizes, stop.cron) == ("stop", Sizes(min=0, desired=0), "0 20 * * *")


@pytest.mark.parametrize(
    ("kind", "at"),
    [
        ("p5.48xlarge", datetime(2099, 3, 1, 10, 30, tzinfo=UTC)),
        ("p6e-gb200.36xlarge", datetime(2099, 3, 1, 10, tzinfo=UTC)),
    ],
)
def test_a_block_is_left_half_an_hour_before_aws_takes_it(kind: str, at: datetime) -> None:
    """AWS takes machines 30 minutes before the block's end, those of UltraServers 60."""
    plain = pool()
    block = replace(plain, offer=replace(plain.offer, types=(kind,), ends=ENDS))

    (action,) = timetable(block)

    assert (action.name, action.at, action.sizes) == ("end", at, Sizes(0, 0, 0))


def test_an_expired_group_keeps_its_maximum() -> None:
    """Min and desired become 0. A later date works again: Pulumi would not raise a maximum that AWS has lowered."""
    (action,) = timetable(pool(expires="2099-12-31"))

    assert (action.name, action.sizes) == ("expire", Sizes(min=0, desired=0))
    assert action.at == datetime(2100, 1, 1, tzinfo=UTC)


def test_the_earliest_end_ends_the_daily_hours() -> None:
    """A morning after it would ask for machines that nobody wants."""
    plain = pool(expires="2099-12-31", schedule={"start": "07:00", "stop": "20:00"})
    both = replace(plain, offer=replace(plain.offer, ends=ENDS))

    untils = {action.name: action.until for action in timetable(both)}

    assert untils == {
        "start": datetime(2099, 3, 1, 10, 30, tzinfo=UTC),
        "stop": datetime(2099, 3, 1, 10, 30, tzinfo=UTC),
        "end": None,
        "expire": None,
    }


CATALOG = load_catalog()


def plan_registration_pool(*types: str, fabric: Fabric | None = None, similar: bool = False) -> PoolPlan:
    """Return a pool of these types in two zones."""
    return PoolPlan(
        name="gpu-us-west-2",
        group="gpu",
        use=Use.KUBERNETES,
        region="us-west-2",
        zones=("us-west-2a", "us-west-2b"),
        offer=Offer(Market.ON_DEMAND, types, similar=similar),
        min=0,
        max=4,
        most=4,
        volume=Volume(200),
        fabric=fabric,
        tenure=Tenure("ops@lab.example"),
    )


@pytest.mark.parametrize(
    ("kind", "resources"),
    [
        ("m7i.large", {}),
        ("g6.xlarge", {"nvidia.com/gpu": "1"}),
        ("g6f.large", {"nvidia.com/gpu": "1"}),
        ("g4ad.8xlarge", {"amd.com/gpu": "2"}),
        ("trn1.32xlarge", {"aws.amazon.com/neuron": "16"}),
        ("x9.large", {}),
    ],
)
def test_a_node_offers_the_devices_of_its_type(kind: str, resources: dict[str, str]) -> None:
    """Beside the part of its root volume that pods may fill; a type that nobody knows promises nothing."""
    told = registration(plan_registration_pool(kind), kind, "us-west-2a", CATALOG)

    assert told.resources == {**resources, "ephemeral-storage": "170Gi"}
    assert [taint for taint in told.taints if taint] == [f"{name}=present:NoSchedule" for name in resources]


@pytest.mark.parametrize(("fabric", "count"), [(Fabric.EFA, "32"), (None, None)])
def test_the_fabric_is_offered_where_it_is_asked_for(fabric: Fabric | None, count: str | None) -> None:
    """A type with EFA has it only on interfaces that the pool makes."""
    told = registration(plan_registration_pool("p5.48xlarge", fabric=fabric), "p5.48xlarge", "us-west-2a", CATALOG)

    assert told.resources.get("vpc.amazonaws.com/efa") == count


def test_a_pool_promises_what_each_of_its_machines_has() -> None:
    """The poorest type's devices, and the labels that all share: not type or zone where there are several."""
    told = pool_registration(plan_registration_pool("g6.12xlarge", "g6.48xlarge"), CATALOG)

    assert told.resources["nvidia.com/gpu"] == "4"
    assert told.labels["kubernetes.io/arch"] == "amd64"
    assert not {INSTANCE_TYPE, ZONE} & told.labels.keys()


def test_similar_types_have_no_name() -> None:
    """The one type that the file names is not the one that comes."""
    assert INSTANCE_TYPE not in pool_registration(plan_registration_pool("m7i.large", similar=True), CATALOG).labels
    assert INSTANCE_TYPE in pool_registration(plan_registration_pool("m7i.large"), CATALOG).labels


def test_a_long_name_stays_a_label_of_its_own() -> None:
    """Kubernetes takes 63 characters: what is cut is told apart."""
    names = [f"{'a' * 60}-{suffix}" for suffix in ("reservation-1", "reservation-2")]

    values = {label_value(name) for name in names}

    assert len(values) == 2
    assert all(len(value) <= 63 for value in values)
    assert label_value("short") == "short"


def test_a_tag_says_the_strongest_taint_of_a_key() -> None:
    """AWS has one tag a key, and a pod that is kept away by one taint is kept away."""
    told = Registration({}, ("team=a:NoExecute", "team=b:NoSchedule", "bare:PreferNoSchedule"), {})

    tags = from_zero_tags("lab", told)

    assert tags["k8s.io/cluster-autoscaler/node-template/taint/team"] == "a:NoExecute"
    assert tags["k8s.io/cluster-autoscaler/node-template/taint/bare"] == ":PreferNoSchedule"


@pytest.mark.parametrize(
    ("types", "found"),
    [
        (("c7i.24xlarge", "m6a.24xlarge"), Likeness((96, 96), (196608, 393216), ("amd", "intel"))),
        (("m7g.large", "x9.large"), Likeness((2, 2), (8192, 8192), ("amazon-web-services",))),
        (("x9.large",), None),
    ],
)
def test_a_likeness_spans_the_named_types(types: tuple[str, ...], found: Likeness | None) -> None:
    """From the smallest to the largest that is known, of the same makers."""
    asked = plan_registration_pool(*types, similar=True)

    assert likeness(asked, CATALOG) == found
    assert likeness(replace(asked, offer=replace(asked.offer, similar=False)), CATALOG) is None
