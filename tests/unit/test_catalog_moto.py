"""The catalogue against moto's own recordings of AWS: two sources of the same facts must agree."""

import gzip
import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import moto.ec2
import pytest
from moto.ec2.models.availability_zones_and_regions import RegionsAndZonesBackend

from bedplate.catalog import InstanceFacts, load_catalog

RESOURCES = Path(moto.ec2.__file__).parent / "resources"

# Zones in which moto offers types although it does not list them: AWS shows them to some accounts only.
UNLISTED_ZONES = {"eu-west-2d"}

# What our source does not state yet, and moto does.
WITHOUT_FACTS = ("mac", "r9g.", "r9gd.", "t8i.", "trn2.3xlarge", "trn2u.")
WITHOUT_CARDS = ("hpc6", "hpc7a", "hpc8", "trn2.48xlarge")

# Two cards in moto's recording, one in our source; as many interfaces in all. None of them is a GPU type.
CARDS_DIFFER = {"i7ie.48xlarge", "i7ie.metal-48xl", "i8ge.48xlarge", "i8ge.metal-48xl"}

# What AWS sells and moto has never recorded: the simulation refuses these.
UNKNOWN_TO_MOTO = {f"g4ad.{size}" for size in ("xlarge", "2xlarge", "4xlarge", "8xlarge", "16xlarge")}


def _gpus(theirs: dict[str, Any]) -> tuple[int, int, str] | None:
    if "GpuInfo" not in theirs:
        return None
    (gpu,) = theirs["GpuInfo"]["Gpus"]
    return gpu["Count"], gpu["MemoryInfo"]["SizeInMiB"], gpu["Manufacturer"].lower()


def _cards(theirs: dict[str, Any]) -> tuple[int, ...]:
    if theirs["InstanceType"].startswith(WITHOUT_CARDS):
        return ()
    return tuple(card["MaximumNetworkInterfaces"] for card in theirs["NetworkInfo"]["NetworkCards"])


FIGURES: dict[str, tuple[Callable[[InstanceFacts], object], Callable[[dict[str, Any]], object]]] = {
    "vcpus": (lambda ours: ours.vcpus, lambda theirs: theirs["VCpuInfo"]["DefaultVCpus"]),
    "memory": (lambda ours: ours.memory_mib, lambda theirs: theirs["MemoryInfo"]["SizeInMiB"]),
    "arch": (lambda ours: ours.arch, lambda theirs: theirs["ProcessorInfo"]["SupportedArchitectures"][-1]),
    "hypervisor": (lambda ours: ours.hypervisor, lambda theirs: theirs.get("Hypervisor", "")),
    "efa": (
        lambda ours: ours.efa,
        lambda theirs: theirs["NetworkInfo"].get("EfaInfo", {}).get("MaximumEfaInterfaces", 0),
    ),
    "gpus": (
        lambda ours: ours.gpu and (ours.gpu.count, ours.gpu.memory_mib, ours.gpu.manufacturer),
        _gpus,
    ),
    "cards": (lambda ours: ours.interfaces_per_card, _cards),
}


@cache
def _recorded(name: str) -> Any:  # noqa: ANN401 - the recordings are AWS's JSON, of one shape each
    return json.loads(gzip.decompress((RESOURCES / f"{name}.json.gz").read_bytes()))


def _offers(region: str) -> dict[str, set[str]]:
    offers: dict[str, set[str]] = {}
    for offer in _recorded(f"instance_type_offerings/availability-zone/{region}"):
        offers.setdefault(offer["InstanceType"], set()).add(offer["Location"])
    return offers


@pytest.mark.parametrize("figure", FIGURES)
def test_instance_types_agree(figure: str) -> None:
    """A figure that two sources tell differently is wrong in one of them."""
    ours, theirs = FIGURES[figure]
    recorded = _recorded("instance_types")
    known = load_catalog().types.keys() & recorded.keys()

    differing = {name for name in known if ours(load_catalog().types[name]) != theirs(recorded[name])}

    assert differing == (CARDS_DIFFER if figure == "cards" else set())


def test_both_know_the_same_instance_types() -> None:
    """A type that one source lacks is listed above with the reason."""
    ours, theirs = set(load_catalog().types), set(_recorded("instance_types"))

    assert ours - theirs == UNKNOWN_TO_MOTO
    assert {name for name in theirs - ours if not name.startswith(WITHOUT_FACTS)} == set()


@pytest.mark.parametrize("region", load_catalog().regions)
def test_offers_agree(region: str) -> None:
    """The simulation must refuse a type exactly where the plan says it is not offered."""
    catalog = load_catalog()

    ours = {name: set(catalog.offered(name, region)) for name in catalog.offers}

    assert {name: zones for name, zones in ours.items() if zones} == _offers(region)


@pytest.mark.parametrize("region", load_catalog().regions)
def test_zones_agree(region: str) -> None:
    """A zone that the simulation does not have cannot hold a subnet there."""
    theirs = {zone.name for zone in RegionsAndZonesBackend.zones[region]}

    assert set(load_catalog().regions[region].zones) - UNLISTED_ZONES == theirs
