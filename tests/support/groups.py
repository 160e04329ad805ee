"""Random groups without a fault: types that their ladders' places offer, each market with what it needs."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hypothesis import strategies as st

from bedplate.catalog import load_catalog

Draw = Callable[[st.SearchStrategy[Any]], Any]
Zones = Mapping[str, tuple[str, ...]]
CPU = (["m7i.xlarge"], ["c7i.24xlarge", "m7i.24xlarge"], ["m7g.2xlarge"])
GPU = (["g6.4xlarge"], ["g6e.12xlarge", "g5.12xlarge"], ["p4d.24xlarge"], ["g5g.4xlarge"])
FABRIC = (["p5.48xlarge"], ["g6.8xlarge"], ["p5en.48xlarge"])
BLOCKS = ("p5.48xlarge", "p5en.48xlarge", "p4d.24xlarge")
PLAIN = ["m7i.xlarge"]
KEYS: Mapping[str, tuple[Any, ...]] = {
    "disk": (16, 100, 16384),
    "owner": ("vision@lab.example",),
    "expires": ("2027-01-31", "permanent", "2026-11-21"),
}
DISKS: tuple[dict[str, int], ...] = (
    {"disk_iops": 8000, "disk_throughput": 1000},
    {"disk_iops": 3000, "disk_throughput": 750},
    {"disk_throughput": 125},
)
WORKER_KEYS: Mapping[str, tuple[Any, ...]] = {
    "labels": ({"team": "vision"}, {"lab.example/a.b_c": ""}),
    "taints": (["team=vision:NoSchedule", "team:NoExecute"], ["lab.example/x:PreferNoSchedule"]),
}
SCHEDULES = (
    {"start": "07:00", "stop": "20:00"},
    {"start": "20:00", "stop": "06:30", "days": "SUN,TUE", "zone": "America/Argentina/Buenos_Aires"},
)


@st.composite
def groups(draw: Draw, zones: Zones, reach: Sequence[str], most: int) -> dict[str, Any]:
    """Return one to three groups of at most so many machines; workers stay in the regions that are in `reach`."""
    names = ["train", "bench", "sim"][: draw(st.integers(1, 3))]
    return {name: _group(draw, zones, reach, most // len(names), number) for number, name in enumerate(names)}


def _group(draw: Draw, zones: Zones, reach: Sequence[str], most: int, number: int) -> dict[str, Any]:
    use = draw(st.sampled_from(["ssh", "kubernetes"]))
    fabric = draw(st.booleans())
    types = draw(st.sampled_from(FABRIC if fabric else CPU + GPU))
    places = {name: zones[name] for name in (reach if use == "kubernetes" else zones)}
    offered = _offered(types, places)
    if not offered:
        types, fabric, offered = PLAIN, False, _offered(PLAIN, places) or {"us-west-2": ("us-west-2a",)}
    ladder = _ladder(draw, types, offered, number)
    reserved = any("reservation" in rung for rung in ladder)
    low = draw(st.integers(0, min(2, most)))
    return {
        "use": use,
        "types": types,
        "nodes": {"min": low, "max": draw(st.integers(max(low, 1), most))},
        "ladder": ladder,
        **({"fabric": "efa"} if fabric else {}),
        **({"similar": True} if types in CPU and not fabric and not reserved and draw(st.booleans()) else {}),
        **_drawn(draw, KEYS),
        **draw(st.sampled_from([{}, *DISKS])),
        **(_drawn(draw, WORKER_KEYS) if use == "kubernetes" else {}),
        **(
            {"schedule": draw(st.sampled_from(SCHEDULES))}
            if use == "ssh" and not fabric and draw(st.booleans())
            else {}
        ),
    }


def _drawn(draw: Draw, keys: Mapping[str, tuple[Any, ...]]) -> dict[str, Any]:
    chosen = draw(st.lists(st.sampled_from(sorted(keys)), unique=True))
    return {key: draw(st.sampled_from(keys[key])) for key in chosen}


def _offered(types: Sequence[str], zones: Zones) -> dict[str, tuple[str, ...]]:
    """Return the zones that offer all of the types, by region; only regions that have one."""
    catalog = load_catalog()
    found = {
        region: tuple(zone for zone in names if all(zone in catalog.offered(kind, region) for kind in types))
        for region, names in zones.items()
    }
    return {region: names for region, names in found.items() if names}


def _ladder(draw: Draw, types: Sequence[str], offered: Zones, number: int) -> list[dict[str, Any]]:
    """Return rungs of which none stands where another does: of each region a market comes once."""
    markets = ["on-demand", "spot", *(["reservation"] if len(types) == 1 else [])]
    markets += ["capacity-block"] if len(types) == 1 and types[0] in BLOCKS else []
    pairs = [(region, market) for region in sorted(offered) for market in markets]
    chosen = draw(st.lists(st.sampled_from(pairs), unique=True, min_size=1, max_size=4))
    return [
        _rung(draw, region, market, offered[region], f"cr-{number:04x}{index:04x}")
        for index, (region, market) in enumerate(chosen)
    ]


def _rung(draw: Draw, region: str, market: str, zones: tuple[str, ...], ident: str) -> dict[str, Any]:
    rung: dict[str, Any] = {"region": region}
    if market != "on-demand" or draw(st.booleans()):
        rung["market"] = market
    if market in ("reservation", "capacity-block"):
        rung |= {"reservation": ident, "zone": draw(st.sampled_from(zones))}
        rung |= draw(st.sampled_from([{}, {"reserved": 2}, {"reserved": 64}]))
    elif draw(st.booleans()):
        rung["zone"] = draw(st.sampled_from(zones))
    if market == "spot" and draw(st.booleans()):
        rung["max_price"] = draw(st.sampled_from([1, 12.5]))
    if market == "capacity-block":
        rung["ends"] = "2027-01-31T11:30:00Z"
    return rung
