"""Random fleets without a fault, as plain values: every key of the file is drawn, and what it names fits the rest."""

import json
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from bedplate.catalog import load_catalog
from bedplate.checks.fault import Fault
from bedplate.load import examine
from tests.support.groups import groups

ADA = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl ada@x"
BOB = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJp0bDmcH2ZKkXlPGrRCxKqFZbZ2G6jvYlUFfEyH0Bqw bob@x"
READER = "arn:aws:iam::111122223333:role/analyst"
HOME = "us-west-2"
ZONES: Mapping[str, str] = {HOME: "abcd", "us-east-1": "abcdf", "us-east-2": "abc", "eu-north-1": "abc"}
# Sites by name: third number of the LAN, last number of the gateway's public address, number of the network.
SITES = {"cellar": (40, 40, 65010), "attic": (60, 41, 65011)}
SUPERNETS = ("10.64.0.0/10", "10.128.0.0/9", "10.0.0.0/9")
Draw = Callable[[st.SearchStrategy[Any]], Any]


def told(fleet: Mapping[str, Any]) -> tuple[Fault, ...]:
    """Return what is wrong with a fleet, written as JSON: all of it is YAML."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "fleet.yaml"
        path.write_text(json.dumps(fleet, indent=1), encoding="utf-8")
        return examine(path, load_catalog())


@st.composite
def fleets(draw: Draw) -> dict[str, Any]:
    """Return a fleet that passes every check; some of the warnings are about what labs do on purpose."""
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
        "sites": _sites(draw),
        "groups": draw(groups(zones, reach, 40 if size > 18 else 300)),
        "storage": _storage(draw, sorted(regions)),
        "people": _people(draw),
        "kubernetes": _cluster(draw),
        "image": _image(draw),
        **draw(_maybe({"vpn": {"laptops": {"gateways": [{"region": HOME}, {"site": "cellar"}], "pool": "/22"}}})),
        **draw(_maybe({"budget": {"monthly": 100_000_000, "email": "ada@lab.example"}})),
        **draw(_maybe({"alarms": {"email": "ada@lab.example"}})),
    }
    return fleet


def _people(draw: Draw) -> dict[str, Any]:
    groups = draw(st.lists(st.sampled_from(["vision", "speech", "robots_2"]), unique=True))
    return {"ada": {"admin": True, "keys": [ADA]}, **draw(_maybe({"bob": {"keys": [BOB], "groups": groups}}))}


def _maybe(values: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.sampled_from([{}, values])


def _regions(draw: Draw) -> dict[str, Any]:
    others = draw(st.lists(st.sampled_from(sorted(ZONES)[:-1]), unique=True, max_size=2))
    found = {HOME: {"home": True, "zones": ["us-west-2a", "us-west-2b"]}}
    for name in others:
        letters = draw(st.lists(st.sampled_from(ZONES[name]), unique=True, min_size=1, max_size=3))
        found[name] = {"zones": [name + letter for letter in letters]}
    return found


def _network(draw: Draw, size: int) -> dict[str, Any]:
    network: dict[str, Any] = {"supernet": draw(st.sampled_from(SUPERNETS)), "region_size": f"/{size}"}
    network |= draw(_maybe({"interconnect": draw(st.sampled_from(["transit", "peering", "none"]))}))
    network |= draw(_maybe({"egress": draw(st.sampled_from(["shared", "per-zone", "none"]))}))
    network |= draw(_maybe({"endpoints": ["ecr", "logs"]}))
    return network


def _sites(draw: Draw) -> dict[str, Any]:
    names = ["cellar", *draw(st.sampled_from([[], ["attic"]]))]
    uses = draw(st.sampled_from([{}, {"use": "kubernetes"}, {"use": "ssh", "gpus": {"model": "titan-x", "count": 4}}]))
    return {name: _site(name, uses) for name in names}


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
