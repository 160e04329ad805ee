"""Pools: names, zones, network interfaces, schedules, Kubernetes registration and instance requirements."""

import gzip
import json
from collections import Counter
from collections.abc import Mapping
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
    InstanceRequirements,
    Interface,
    PoolPlan,
    Sizes,
    addresses_per_node,
    instance_requirements,
    interfaces,
    next_start,
    next_stop,
    own_end,
    scheduled_actions,
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
from bedplate.spec.groups import Fabric, Group, Nodes, Rung
from bedplate.spec.sites import Use
from tests.testlab.fleets.sketch import catalog, group, sketch, with_group, with_rung

WEST = {"region": "us-west-2"}
WEST_B = {**WEST, "zone": "us-west-2b"}
RESERVED = {**WEST_B, "market": "reservation", "reservation": "cr-0123456789abcdef0"}
BLOCK = {**WEST_B, "market": "capacity-block", "reservation": "cr-0123456789abcdef1"}
TWO_ZONES = catalog({"g6.xlarge": {"us-west-2": "bcd"}, "g5.xlarge": {"us-west-2": "a"}, "p5.48xlarge": {}})


def pools(*ladder: Mapping[str, object], catalog_facts: Catalog = TWO_ZONES, **parts: Any) -> tuple[PoolPlan, ...]:  # noqa: ANN401  raw values
    """Return the pools of one group with a ladder."""
    return plan_fleet(sketch(groups={"gpu": group(*ladder, **parts)}), Record({}), catalog_facts).pools


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
def test_a_pool_name_has_place_market_and_reservation(rung: dict[str, str], name: str) -> None:
    """The rung's number is not part of the name."""
    (pool,) = pools(rung)

    assert pool.name == name


def test_an_inserted_rung_renames_no_pool() -> None:
    """Pools below a new rung keep their names, so their machines stay."""
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
    """Zones that offer at least one type; all zones for a type that the catalog does not have."""
    (pool,) = pools(WEST, types=types)

    assert pool.zones == tuple(f"us-west-2{letter}" for letter in zones)


def test_a_fabric_pool_has_one_zone() -> None:
    """A rung with a region becomes one pool for each zone that offers the type."""
    group_pools = pools(RESERVED, WEST, fabric="efa")

    assert [(pool.name, pool.zones) for pool in group_pools] == [
        ("gpu-us-west-2b-reservation-cr-0123456789abcdef0", ("us-west-2b",)),
        ("gpu-us-west-2b", ("us-west-2b",)),
        ("gpu-us-west-2c", ("us-west-2c",)),
    ]


def test_a_zone_named_twice_is_one_pool() -> None:
    """A zone rung followed by its region's rung makes no second pool in the zone, and the order stays."""
    group_pools = pools({**WEST, "zone": "us-west-2c"}, WEST, fabric="efa")

    assert [pool.name for pool in group_pools] == ["gpu-us-west-2c", "gpu-us-west-2b"]


def test_only_the_first_pool_has_the_minimum() -> None:
    """The group's minimum runs once; every pool may grow to the group's maximum."""
    group_pools = pools(RESERVED, WEST, fabric="efa", nodes={"min": 2, "max": 9})

    assert [(pool.min, pool.max) for pool in group_pools] == [(2, 9), (0, 9), (0, 9)]


def test_a_pool_is_limited_to_its_reservation() -> None:
    """AWS starts no machine beyond the reservation, so the next rung grows."""
    reserved, rest = pools({**RESERVED, "reserved": 3}, WEST)

    assert (reserved.max, rest.max) == (3, 4)


def test_the_first_of_two_rungs_of_one_pool_counts() -> None:
    """A zone's maximum price takes precedence over a later rung for its region."""
    zone_price, region_price = {"market": "spot", "max_price": 5.0}, {"market": "spot", "max_price": 9.0}

    group_pools = pools({**WEST_B, **zone_price}, {**WEST, **region_price}, types=["g6.xlarge"], fabric="efa")

    prices = {pool.zones: pool.rung_spec.max_price for pool in group_pools}
    assert prices == {("us-west-2b",): 5.0, ("us-west-2c",): 9.0}


TYPES = load_catalog().types
RECORDED = Path(moto.ec2.__file__).parent / "resources" / "instance_types.json.gz"
EFA, ENA, ONLY = Adapter.EFA, Adapter.ENA, Adapter.EFA_ONLY


@cache
def _cards() -> dict[str, list[dict[str, Any]]]:
    """Return the network cards of each type from recorded EC2 data, independent of the catalog."""
    types = json.loads(gzip.decompress(RECORDED.read_bytes()))
    return {name: entry["NetworkInfo"]["NetworkCards"] for name, entry in types.items()}


def _layout(name: str) -> tuple[Interface, ...]:
    return interfaces(TYPES[name], Fabric.EFA)


def _broken_rules(name: str) -> list[str]:
    """Return the rules of AWS that the layout of a type breaks."""
    layout, facts = _layout(name), TYPES[name]
    fabric = [interface for interface in layout if interface.adapter in (EFA, ONLY)]
    places = Counter((interface.card, interface.device) for interface in layout)
    on_card = Counter(interface.card for interface in layout)
    capacity = dict(enumerate(facts.interfaces_per_card)) or dict.fromkeys(range(max(facts.efa, 1)), 1)
    rules = {
        "the primary interface is first": (layout[0].card, layout[0].device) == (0, 0),
        "the primary interface has IP": layout[0].adapter in (ENA, EFA),
        "one interface has the only address": sum(interface.adapter in (ENA, EFA) for interface in layout) == 1,
        "no device index is used twice": max(places.values()) == 1,
        "no card exceeds its interfaces": all(on_card[card] <= capacity.get(card, 0) for card in on_card),
        "device indexes of a card are consecutive": all(
            interface.device < on_card[interface.card] for interface in layout
        ),
        "the type has its maximum of EFAs": len(fabric) == facts.efa,
        "one EFA a card": len({interface.card for interface in fabric}) == len(fabric),
    }
    return [rule for rule, is_kept in rules.items() if not is_kept]


def test_every_interface_layout_follows_the_rules_of_aws() -> None:
    """The layout of each type in the catalog breaks no rule."""
    broken = {name: rules for name in TYPES if (rules := _broken_rules(name))}

    assert broken == {}
    assert sum(TYPES[name].efa > 0 for name in TYPES) > 250


def test_every_interface_is_supported_by_its_card() -> None:
    """AWS's description of each type allows every interface of the layout."""
    unsupported = {
        (name, interface)
        for name in TYPES.keys() & _cards().keys()
        for interface in _layout(name)
        if interface.card >= len(_cards()[name])
        or interface.adapter not in _cards()[name][interface.card]["InterfaceTypes"]
        or interface.device >= _cards()[name][interface.card]["MaximumNetworkInterfaces"]
    }

    assert unsupported == set()


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
def test_interface_layouts_match_the_guide(name: str, layout: list[tuple[int, int, Adapter]]) -> None:
    """Layouts of typical types are those of AWS's EFA guide."""
    assert [(interface.card, interface.device, interface.adapter) for interface in _layout(name)] == layout


def test_a_pool_has_only_types_that_its_zones_offer() -> None:
    """The template of a region names its first type; a rung without any offered type is a fault of its own."""
    offers = catalog({"g6.large": {"us-west-2": "ab"}, "g5.large": {"us-west-2": "a", "us-east-1": "b"}})
    ladder = ({"region": "us-west-2"}, {"region": "us-east-1"}, {"region": "eu-north-1", "zone": "eu-north-1a"})
    fleet = sketch(groups={"box": group(*ladder, types=("g6.large", "g5.large"))})

    plan = plan_fleet(fleet, Record({}), offers)

    assert [pool.types for pool in plan.pools] == [("g6.large", "g5.large"), ("g5.large",), ("g6.large", "g5.large")]


@pytest.mark.parametrize("name", ["p5.48xlarge", "m7i.4xlarge"])
def test_without_a_fabric_there_is_one_interface(name: str) -> None:
    """Other network cards are not used."""
    assert interfaces(TYPES[name], None) == (PLAIN,)


def test_an_unknown_type_gets_one_interface_with_efa() -> None:
    """The machine reaches the fabric through one card."""
    assert interfaces(None, Fabric.EFA) == (Interface(0, 0, EFA),)


@pytest.mark.parametrize("fabric", [None, Fabric.EFA])
def test_a_machine_needs_one_address(fabric: Fabric | None) -> None:
    """EFA-only interfaces need no address."""
    assert {addresses_per_node(facts, fabric) for facts in (*TYPES.values(), None)} == {1}


def test_no_more_efas_than_cards_are_used() -> None:
    """With contradictory facts, only existing cards are used."""
    odd = InstanceFacts("z9.large", "x86_64", 2, 4096, interfaces_per_card=(2, 2), efa=4)

    assert {interface.card for interface in interfaces(odd, Fabric.EFA)} == {0, 1}


ENDS = "2099-03-01T11:30:00Z"


def pool(**parts: Any) -> PoolPlan:  # noqa: ANN401  raw values
    """Return the pool of a group with one rung."""
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
def test_weekdays_are_cron_numbers(words: str, days: tuple[int, ...]) -> None:
    """Sunday is 0; a range over the weekend becomes a list."""
    assert weekdays(words) == days


def test_a_pool_without_end_has_no_scheduled_action() -> None:
    """Without schedule, block or expiry there is no action; the same for `permanent`."""
    assert scheduled_actions(pool()) == ()
    assert scheduled_actions(pool(expires="permanent")) == ()


def test_a_schedule_starts_the_minimum_and_stops_all() -> None:
    """The evening stops all machines; the maximum stays, so machines can still be started by hand."""
    start, stop = scheduled_actions(pool(schedule={"start": "07:00", "stop": "20:00"}))

    assert (start.name, start.sizes, start.cron) == ("start", Sizes(min=1), "0 7 * * 1,2,3,4,5")
    assert (stop.name, stop.sizes, stop.cron) == ("stop", Sizes(min=0, desired=0), "0 20 * * *")


@pytest.mark.parametrize(
    ("kind", "at"),
    [
        ("p5.48xlarge", datetime(2099, 3, 1, 10, 30, tzinfo=UTC)),
        ("p6e-gb200.36xlarge", datetime(2099, 3, 1, 10, tzinfo=UTC)),
    ],
)
def test_a_block_is_emptied_half_an_hour_before_aws_ends_it(kind: str, at: datetime) -> None:
    """AWS terminates machines 30 minutes before the block's end, those of UltraServers 60 minutes."""
    block = with_group(with_rung(pool(), ends=ENDS), types=(kind,))

    (action,) = scheduled_actions(block)

    assert (action.name, action.at, action.sizes) == ("end", at, Sizes(0, 0, 0))


def test_an_expired_group_keeps_its_maximum() -> None:
    """Minimum and desired become 0. A later date works again: Pulumi would not raise a maximum that AWS has lowered."""
    (action,) = scheduled_actions(pool(expires="2099-12-31"))

    assert (action.name, action.sizes) == ("expire", Sizes(min=0, desired=0))
    assert action.at == datetime(2100, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("now", "stop"),
    [
        (datetime(2026, 3, 28, 18, tzinfo=UTC), datetime(2026, 3, 28, 19, tzinfo=UTC)),
        (datetime(2026, 3, 28, 19, tzinfo=UTC), datetime(2026, 3, 29, 18, tzinfo=UTC)),
        (datetime(2026, 3, 31, 12, tzinfo=UTC), datetime(2026, 3, 31, 18, tzinfo=UTC)),
        (datetime(2026, 3, 31, 19, tzinfo=UTC), datetime(2026, 4, 1, tzinfo=UTC)),
    ],
    ids=["today", "after the clocks change", "last day", "expiry"],
)
def test_the_next_stop_is_that_of_the_schedule_or_the_expiry(now: datetime, stop: datetime) -> None:
    """The schedule stops machines at the same local time every day, also on days without a start."""
    hours = {"start": "07:00", "stop": "20:00", "zone": "Europe/Zurich"}

    assert next_stop(pool(expires="2026-03-31", schedule=hours), now) == stop


@pytest.mark.parametrize(
    ("now", "hours", "start"),
    [
        (datetime(2026, 3, 27, 12, tzinfo=UTC), ("07:00", "20:00"), None),
        (datetime(2026, 3, 27, 20, tzinfo=UTC), ("07:00", "20:00"), datetime(2026, 3, 30, 5, tzinfo=UTC)),
        (datetime(2026, 3, 28, 1, tzinfo=UTC), ("20:00", "05:30"), None),
        (datetime(2026, 3, 29, 1, tzinfo=UTC), ("20:00", "05:30"), datetime(2026, 3, 30, 18, tzinfo=UTC)),
    ],
    ids=["within", "the weekend, over a change of clocks", "the night after a start", "a night without a start"],
)
def test_the_next_start_outside_the_hours_of_a_group(
    now: datetime, hours: tuple[str, str], start: datetime | None
) -> None:
    """Within its hours a group has none, nor has one that always runs."""
    schedule = {"start": hours[0], "stop": hours[1], "zone": "Europe/Zurich"}

    assert next_start(pool(schedule=schedule), now) == start
    assert next_start(pool(), now) is None


@pytest.mark.parametrize(
    ("stop", "zone", "expired"),
    [
        ("00:00", "UTC", "2099-12-31T23:59"),
        ("01:00", "Europe/Zurich", "2099-12-31T23:59"),
        ("00:00", "Europe/Zurich", "2100-01-01T00:00"),
    ],
)
def test_two_actions_of_a_group_never_have_the_same_time(stop: str, zone: str, expired: str) -> None:
    """AWS refuses the second one; a machine may end a minute earlier, not later."""
    hours = {"start": "07:00", "stop": stop, "zone": zone}

    *_, expire = scheduled_actions(pool(expires="2099-12-31", schedule=hours))

    assert expire.at == datetime.fromisoformat(f"{expired}+00:00")


@pytest.mark.parametrize(
    ("until", "end"),
    [
        (datetime(2099, 12, 30, 6, 0, 42, tzinfo=UTC), datetime(2099, 12, 30, 5, 59, tzinfo=UTC)),
        (datetime(2099, 12, 31, 23, 59, 7, tzinfo=UTC), datetime(2099, 12, 31, 23, 58, tzinfo=UTC)),
        (datetime(2099, 12, 30, 6, 1, 59, tzinfo=UTC), datetime(2099, 12, 30, 6, 1, tzinfo=UTC)),
    ],
    ids=["start of the hours", "expiry, which is moved itself", "own time"],
)
def test_the_end_of_a_start_by_hand_has_a_minute_of_its_own(until: datetime, end: datetime) -> None:
    """AWS refuses a second action at a time of the group, so machines end some seconds or a minute earlier."""
    hours = {"start": "07:00", "stop": "01:00", "zone": "Europe/Zurich"}

    assert own_end(pool(expires="2099-12-31", schedule=hours), until) == end


def test_a_block_and_an_expiry_end_at_different_times() -> None:
    """A block whose machines end at midnight, when the group expires."""
    block = with_rung(pool(expires="2099-03-01"), ends=datetime(2099, 3, 2, 1, 0, tzinfo=UTC).isoformat())

    times = [action.at for action in scheduled_actions(block)]

    assert len({*times}) == len(times) == 2


def test_the_earliest_end_stops_the_schedule() -> None:
    """No machine is started after the block's end or the expiry."""
    plain = pool(expires="2099-12-31", schedule={"start": "07:00", "stop": "20:00"})
    both = with_rung(plain, ends=ENDS)

    untils = {action.name: action.until for action in scheduled_actions(both)}

    assert untils == {
        "start": datetime(2099, 3, 1, 10, 30, tzinfo=UTC),
        "stop": datetime(2099, 3, 1, 10, 30, tzinfo=UTC),
        "end": None,
        "expire": None,
    }


CATALOG = load_catalog()


def worker_pool(*types: str, fabric: Fabric | None = None, similar: bool = False) -> PoolPlan:
    """Return a pool of these types in two zones."""
    spec = Group(
        use=Use.KUBERNETES,
        types=types,
        nodes=Nodes(min=0, max=4),
        ladder=(Rung(region="us-west-2"),),
        disk=200,
        fabric=fabric,
        similar=similar,
    )
    zones = ("us-west-2a", "us-west-2b")
    return PoolPlan("gpu-us-west-2", "gpu", spec, 0, zones, types, min=0, max=4, owner="ops@lab.example")


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
def test_a_node_registers_the_devices_of_its_type(kind: str, resources: dict[str, str]) -> None:
    """The node also registers disk space for pods; an unknown type registers no devices."""
    registered = registration(worker_pool(kind), kind, "us-west-2a", CATALOG)

    assert registered.resources == {**resources, "ephemeral-storage": "170Gi"}
    assert [taint for taint in registered.taints if taint] == [f"{name}=present:NoSchedule" for name in resources]


@pytest.mark.parametrize(("fabric", "count"), [(Fabric.EFA, "32"), (None, None)])
def test_efa_is_registered_with_a_fabric_only(fabric: Fabric | None, count: str | None) -> None:
    """A type with EFA has EFA interfaces only if the pool sets a fabric."""
    registered = registration(worker_pool("p5.48xlarge", fabric=fabric), "p5.48xlarge", "us-west-2a", CATALOG)

    assert registered.resources.get("vpc.amazonaws.com/efa") == count


def test_a_pool_registers_the_common_resources() -> None:
    """The smallest device count and the common labels; type and zone only if there is one."""
    registered = pool_registration(worker_pool("g6.12xlarge", "g6.48xlarge"), CATALOG)

    assert registered.resources["nvidia.com/gpu"] == "4"
    assert registered.labels["kubernetes.io/arch"] == "amd64"
    assert not {INSTANCE_TYPE, ZONE} & registered.labels.keys()


def test_similar_types_have_no_type_label() -> None:
    """Auto Scaling may choose another type than the named one."""
    assert INSTANCE_TYPE not in pool_registration(worker_pool("m7i.large", similar=True), CATALOG).labels
    assert INSTANCE_TYPE in pool_registration(worker_pool("m7i.large"), CATALOG).labels


def test_a_long_name_is_a_unique_label() -> None:
    """A label has at most 63 characters: a longer name is cut and ends in a digest."""
    names = [f"{'a' * 60}-{suffix}" for suffix in ("reservation-1", "reservation-2")]

    values = {label_value(name) for name in names}

    assert len(values) == 2
    assert all(len(value) <= 63 for value in values)
    assert label_value("short") == "short"


def test_a_tag_has_the_strictest_taint_of_a_key() -> None:
    """The autoscaler reads one tag for each key."""
    registered = Registration({}, ("team=a:NoExecute", "team=b:NoSchedule", "bare:PreferNoSchedule"), {})

    tags = from_zero_tags("lab", registered)

    assert tags["k8s.io/cluster-autoscaler/node-template/taint/team"] == "a:NoExecute"
    assert tags["k8s.io/cluster-autoscaler/node-template/taint/bare"] == ":PreferNoSchedule"


@pytest.mark.parametrize(
    ("types", "requirements"),
    [
        (("c7i.24xlarge", "m6a.24xlarge"), InstanceRequirements((96, 96), (196608, 393216), ("amd", "intel"))),
        (("m7g.large", "x9.large"), InstanceRequirements((2, 2), (8192, 8192), ("amazon-web-services",))),
        (("x9.large",), None),
    ],
)
def test_instance_requirements_span_the_named_types(
    types: tuple[str, ...], requirements: InstanceRequirements | None
) -> None:
    """From the smallest to the largest known type, with the same processor manufacturers."""
    similar = worker_pool(*types, similar=True)

    assert instance_requirements(similar, CATALOG) == requirements
    assert instance_requirements(with_group(similar, similar=False), CATALOG) is None
