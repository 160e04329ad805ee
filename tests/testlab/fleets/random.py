"""Random valid fleets for hypothesis: they pass every check. Groups use types that the zones of their ladder offer."""

import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from bedplate.catalog import load_catalog
from bedplate.load import examine
from bedplate.rules import Fault

Sample = Callable[[st.SearchStrategy[Any]], Any]
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
def groups(draw: Sample, zones: Zones, reach: Sequence[str], most: int) -> dict[str, Any]:
    """Return one to three groups of at most `most` machines in total; workers use only the regions in `reach`."""
    names = ["train", "bench", "sim"][: draw(st.integers(1, 3))]
    return {name: _group(draw, zones, reach, most // len(names), number) for number, name in enumerate(names)}


def _group(draw: Sample, zones: Zones, reach: Sequence[str], most: int, number: int) -> dict[str, Any]:
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


def _drawn(draw: Sample, keys: Mapping[str, tuple[Any, ...]]) -> dict[str, Any]:
    chosen = draw(st.lists(st.sampled_from(sorted(keys)), unique=True))
    return {key: draw(st.sampled_from(keys[key])) for key in chosen}


def _offered(types: Sequence[str], zones: Zones) -> dict[str, tuple[str, ...]]:
    """Return the zones that offer all types, by region; regions without such a zone are left out."""
    catalog = load_catalog()
    offered = {
        region: tuple(zone for zone in names if all(zone in catalog.offered(kind, region) for kind in types))
        for region, names in zones.items()
    }
    return {region: names for region, names in offered.items() if names}


def _ladder(draw: Sample, types: Sequence[str], offered: Zones, number: int) -> list[dict[str, Any]]:
    """Return rungs without duplicates: each market once for each region."""
    markets = ["on-demand", "spot", *(["reservation"] if len(types) == 1 else [])]
    markets += ["capacity-block"] if len(types) == 1 and types[0] in BLOCKS else []
    pairs = [(region, market) for region in sorted(offered) for market in markets]
    chosen = draw(st.lists(st.sampled_from(pairs), unique=True, min_size=1, max_size=4))
    return [
        _rung(draw, region, market, offered[region], f"cr-{number:04x}{index:04x}")
        for index, (region, market) in enumerate(chosen)
    ]


def _rung(draw: Sample, region: str, market: str, zones: tuple[str, ...], ident: str) -> dict[str, Any]:
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


ADA = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl ada@x"
BOB = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJp0bDmcH2ZKkXlPGrRCxKqFZbZ2G6jvYlUFfEyH0Bqw bob@x"
READER = "arn:aws:iam::111122223333:role/analyst"
HOME = "us-west-2"
ZONES: Mapping[str, str] = {HOME: "abcd", "us-east-1": "abcdf", "us-east-2": "abc", "eu-north-1": "abc"}
# Sites by name: third octet of the LAN, last octet of the gateway's public address, AS number.
SITES = {"cellar": (40, 40, 65010), "attic": (60, 41, 65011)}
SUPERNETS = ("10.64.0.0/10", "10.128.0.0/9", "10.0.0.0/9")
Draw = Callable[[st.SearchStrategy[Any]], Any]


def find_faults(fleet: Mapping[str, Any]) -> tuple[Fault, ...]:
    """Return the faults of a fleet, written as JSON, which is valid YAML."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "fleet.yaml"
        path.write_text(json.dumps(fleet, indent=1), encoding="utf-8")
        return examine(path, load_catalog())


@st.composite
def fleets(draw: Draw) -> dict[str, Any]:
    """Return a fleet without errors; it may have warnings."""
    regions = _regions(draw)
    size = draw(st.integers(16, 20))
    network = _network(draw, size)
    reach = [HOME] if network.get("interconnect") == "none" else sorted(regions)
    zones = {name: tuple(region["zones"]) for name, region in regions.items()}
    fleet: dict[str, Any] = {
        "version": 1,
        "name": draw(st.sampled_from(["lab", "a-very-long-fleet-nam"[:20], "x9"])),
        "account": "111122223333",
        "owner": "infra@lab.example",
        "domain": draw(st.sampled_from(["lab.internal", "ml.lab.example"])),
        "network": network,
        "regions": regions,
        "sites": _sites(draw, network),
        "groups": draw(groups(zones, reach, 40 if size > 18 else 300)),
        "storage": _storage(draw, sorted(regions)),
        "people": _people(draw),
        "kubernetes": _cluster(draw),
        "image": _image(draw),
        **draw(_maybe({"vpn": {"laptops": {"gateways": [{"region": HOME}, {"site": "cellar"}], "pool": "/22"}}})),
        **draw(_maybe({"budget": {"monthly": 100_000_000, "email": "ada@lab.example"}})),
        **draw(_maybe({"alarms": {"email": "ada@lab.example"}})),
        # Elsewhere the hub may lack a path.
        **draw(_maybe({"hub": {"region": HOME}} if network.get("interconnect", "transit") == "transit" else {})),
    }
    return fleet


def _people(draw: Draw) -> dict[str, Any]:
    groups = draw(st.lists(st.sampled_from(["vision", "speech", "robots_2"]), unique=True))
    return {"ada": {"admin": True, "keys": [ADA]}, **draw(_maybe({"bob": {"keys": [BOB], "groups": groups}}))}


def _maybe(values: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.sampled_from([{}, values])


def _regions(draw: Draw) -> dict[str, Any]:
    others = draw(st.lists(st.sampled_from(sorted(ZONES)[:-1]), unique=True, max_size=2))
    regions = {HOME: {"home": True, "zones": ["us-west-2a", "us-west-2b"]}}
    for name in others:
        letters = draw(st.lists(st.sampled_from(ZONES[name]), unique=True, min_size=1, max_size=3))
        regions[name] = {"zones": [name + letter for letter in letters]}
    return regions


def _network(draw: Draw, size: int) -> dict[str, Any]:
    network: dict[str, Any] = {"supernet": draw(st.sampled_from(SUPERNETS)), "region_size": f"/{size}"}
    network |= draw(_maybe({"interconnect": draw(st.sampled_from(["transit", "peering", "none"]))}))
    network |= draw(_maybe({"egress": draw(st.sampled_from(["shared", "per-zone", "none"]))}))
    network |= draw(_maybe({"endpoints": ["ecr", "logs"]}))
    return network


def _sites(draw: Draw, network: dict[str, Any]) -> dict[str, Any]:
    names = ["cellar", *draw(st.sampled_from([[], ["attic"]]))]
    uses = draw(st.sampled_from([{}, {"use": "kubernetes"}, {"use": "ssh", "gpus": {"model": "a100", "count": 4}}]))
    # Without a connection of the two sites, only one may have workers.
    second = {} if network.get("interconnect") == "none" else uses
    return {name: _site(name, uses if name == "cellar" else second) for name in names}


def _site(name: str, uses: dict[str, Any]) -> dict[str, Any]:
    third, last, number = SITES[name]
    return {
        "lan": f"192.168.{third}.0/{22 if name == 'cellar' else 24}",
        "gateway": {"machine": "gate", "public": f"8.20.30.{last}", "asn": number},
        "machines": {"gate": {"address": f"192.168.{third}.1"}, "titan": {"address": f"192.168.{third}.21", **uses}},
    }


def _storage(draw: Draw, regions: list[str]) -> dict[str, Any]:
    nfs = {"kind": "nfs", "site": "cellar", "machine": "gate", "export": "/srv/home", "mount": "/mnt/home"}
    return {
        "data": {"kind": "s3", "regions": draw(st.permutations(regions)), **draw(_maybe({"readers": [READER]}))},
        **draw(_maybe({"home": {"kind": "efs", "region": draw(st.sampled_from(regions)), "mount": "/home"}})),
        **draw(_maybe({"cellar-home": nfs})),
    }


def _cluster(draw: Draw) -> dict[str, Any]:
    count, version = draw(st.sampled_from([1, 3, 5])), draw(st.sampled_from(["1.35", "1.36", "1.37"]))
    return {"version": version, "control_plane": {"type": "m7i.xlarge", "count": count}}


def _image(draw: Draw) -> dict[str, Any]:
    return {
        "driver": draw(st.sampled_from(["580", "595"])),
        **draw(_maybe({"kernel": draw(st.sampled_from(["6.8", "6.17", "7.0"]))})),
        **draw(_maybe({"kubernetes": "1.35"})),
        **draw(_maybe({"disk": 16})),
    }
