"""Small fleets for tests: a test passes the parts that matter, the rest has defaults."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from bedplate.catalog import Catalog, RegionFacts, load_catalog
from bedplate.catalog.tables import InstanceFacts
from bedplate.plan import FleetPlan, Record, plan_fleet
from bedplate.plan.pools import PoolPlan, pool_interfaces
from bedplate.spec import Fleet
from stacks.compute.template import NodeBase, Start, image_of, template_args
from tests.testlab.rehearsal.programs import rendered

REGIONS = ("us-west-2", "us-east-1", "eu-north-1")
ZONES: Mapping[str, tuple[str, ...]] = {name: tuple(name + letter for letter in "abc") for name in REGIONS}
LANS: Mapping[str, str] = {"cellar": "192.168.40.0/22"}


def sketch(
    regions: Mapping[str, Sequence[str]] = ZONES,
    *,
    blocks: Mapping[str, str] | None = None,
    sites: Mapping[str, str] | None = None,
    network: Mapping[str, object] | None = None,
    **parts: Any,  # noqa: ANN401  the raw values of other top-level keys
) -> Fleet:
    """Return a fleet of these regions and zones; `blocks` are declared blocks of regions, `sites` are LANs."""
    declared = {name: {"block": block} for name, block in (blocks or {}).items()}
    return Fleet.model_validate(
        {
            "version": 1,
            "name": "lab",
            "account": "111122223333",
            "owner": "ops@lab.example",
            "domain": "lab.internal",
            "network": {"supernet": "10.64.0.0/10", **(network or {})},
            "regions": {
                name: {"home": not number, "zones": tuple(zones), **declared.get(name, {})}
                for number, (name, zones) in enumerate(regions.items())
            },
            "sites": {name: site(lan) for name, lan in (sites or {}).items()},
            **parts,
        }
    )


def site(lan: str) -> dict[str, Any]:
    """Return a site with a gateway on a LAN."""
    address = lan.partition("/")[0].rpartition(".")[0] + ".1"
    return {
        "lan": lan,
        "gateway": {"machine": "gate", "public": "8.20.30.40", "asn": 65010},
        "machines": {"gate": {"address": address}},
    }


def laptops(*places: Mapping[str, str], **more: str | bool) -> dict[str, Any]:
    """Return a `vpn` with a laptop gateway in each place, such as {"region": "us-west-2"}, and other keys."""
    return {"laptops": {"gateways": tuple(dict(place) for place in places), **more}}


def cluster(**sizes: str) -> dict[str, Any]:
    """Return a `kubernetes` with these block sizes."""
    return {"version": "1.36", "control_plane": {"type": "m7i.xlarge"}, **sizes}


def group(*ladder: Mapping[str, object], types: Sequence[str] = ("g6.xlarge",), **parts: Any) -> dict[str, Any]:  # noqa: ANN401  raw values
    """Return a group with this ladder."""
    rungs = tuple(dict(rung) for rung in ladder)
    return {"use": "ssh", "types": tuple(types), "nodes": {"min": 1, "max": 4}, "ladder": rungs, **parts}


def catalog(
    offers: Mapping[str, Mapping[str, str]] | None = None, prices: Mapping[str, float] | None = None
) -> Catalog:
    """Return a catalog of the sketch's regions and the offered types."""
    return Catalog(
        regions={name: RegionFacts(name, zones, opt_in=False) for name, zones in ZONES.items()},
        types={name: InstanceFacts(name, "x86_64", 4, 16384) for name in offers or {}},
        offers=offers or {},
        prices=prices or {},
        price_date="2026-07-20",
        price_region="us-east-1",
    )


BASE = NodeBase("arn:aws:iam::111122223333:instance-profile/lab-ssh", "sg-0123456789abcdef0")
HERE: dict[str, Any] = {"region": "us-west-2", "zone": "us-west-2a"}
BOUGHT: dict[str, dict[str, Any]] = {
    "on-demand": HERE,
    "spot": {**HERE, "market": "spot"},
    "reservation": {**HERE, "market": "reservation", "reservation": "cr-0123456789abcdef0"},
    "capacity-block": {
        **HERE,
        "market": "capacity-block",
        "reservation": "cr-0123456789abcdef1",
        "ends": "2027-01-31T11:30:00Z",
    },
}


def pooled(kind: str, market: str = "on-demand", record: Record | None = None, **parts: Any) -> FleetPlan:  # noqa: ANN401  raw values
    """Return the plan of a fleet with one pool of a type, with EFA if the type supports it."""
    facts = load_catalog().types.get(kind)
    fabric = {"fabric": "efa"} if facts is not None and facts.efa else {}
    only_group = group(BOUGHT[market], types=(kind,), **{**fabric, **parts})
    return plan_fleet(sketch(groups={"box": only_group}), record or Record({}), load_catalog())


def with_group(pool: PoolPlan, **values: object) -> PoolPlan:
    """Return a pool whose group has other values."""
    spec = pool.group_spec.model_copy(update=values)
    return replace(pool, group_spec=spec, types=spec.types if "types" in values else pool.types)


def with_rung(pool: PoolPlan, **values: object) -> PoolPlan:
    """Return a pool whose rung has other values, and is the only one of its group."""
    return replace(with_group(pool, ladder=(pool.rung_spec.model_copy(update=values),)), rung=0)


def template_of(plan: FleetPlan, pool: PoolPlan, script: str | None = None) -> dict[str, Any]:
    """Return the inputs of a pool's launch template."""
    catalog = load_catalog()
    image = image_of(plan, pool.region, pool.types, catalog)
    start = Start(image, pool_interfaces(pool, catalog), script)
    return rendered(template_args(plan, pool, BASE, start))
