"""The images that Canonical publishes today, looked up region by region."""

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from types import MappingProxyType
from typing import Any, cast

from bedplate.account.client import Answers, Door, NotThere, ask_regions, every_answer
from bedplate.catalog.catalog import RegionAnswer
from bedplate.catalog.facts import AcceleratorFacts, Arch, GpuFacts, InstanceFacts
from bedplate.errors import PartError
from bedplate.plan.planner import IMAGE_ID, image_parameter
from bedplate.plan.quotas import Need


def newest_images(door: Door, places: Iterable[str]) -> Mapping[str, str]:
    """Return the image of each `region/architecture`; raises the first failure's error if any region gives none."""
    wanted = [place.split("/") for place in places]

    def ask(region: str) -> dict[str, str]:
        return {f"{region}/{arch}": _image(door, region, arch) for name, arch in wanted if name == region}

    answers = every_answer(ask_regions((region for region, _ in wanted), ask), "nothing was recorded")
    return dict(chain.from_iterable(images.items() for images in answers.values()))


def _image(door: Door, region: str, arch: str) -> str:
    name = image_parameter(arch)
    value: str = door.call("ssm", region, "get_parameter", Name=name)["Parameter"]["Value"]
    if not IMAGE_ID.fullmatch(value):
        raise PartError(f"{name} is no image id", fix="look at it: `aws ssm get-parameter --name ...`")
    return value


Entry = Mapping[str, Any]

_ARCHITECTURES = ("x86_64", "arm64")
# `200 Gigabit`, `4x 100 Gigabit`; `Up to 10 Gigabit` is a burst.
_RATE = re.compile(r"(?:(\d+)x )?([\d.]+) Gigabit")


def read_instance(entry: Entry) -> InstanceFacts | None:
    """Return what an entry says of a type; None for the architecture of a Mac, which runs nothing of ours."""
    known = [arch for arch in entry["ProcessorInfo"]["SupportedArchitectures"] if arch in _ARCHITECTURES]
    if not known:
        return None
    network = entry.get("NetworkInfo", {})
    return InstanceFacts(
        name=entry["InstanceType"],
        arch=cast("Arch", known[-1]),
        vcpus=entry["VCpuInfo"]["DefaultVCpus"],
        memory_mib=entry["MemoryInfo"]["SizeInMiB"],
        network_mbps=_network(network),
        ebs_mbps=_ebs(entry),
        local_nvme_gb=_local_nvme(entry),
        interfaces_per_card=tuple(card["MaximumNetworkInterfaces"] for card in network.get("NetworkCards", ())),
        ipv4_per_interface=network.get("Ipv4AddressesPerInterface", 0),
        efa=network.get("EfaInfo", {}).get("MaximumEfaInterfaces", 0),
        gpu=_gpu(entry),
        accelerator=_accelerator(entry),
        hypervisor=entry.get("Hypervisor", ""),
    )


def _network(network: Entry) -> int:
    """Return the sustained rate in Mbit/s: what EC2 says of the type as a whole, else of its cards together."""
    if stated := _RATE.fullmatch(network.get("NetworkPerformance", "")):
        return round(1000 * int(stated[1] or 1) * float(stated[2]))
    cards: Iterable[float] = (card.get("BaselineBandwidthInGbps", 0) for card in network.get("NetworkCards", ()))
    return round(1000 * sum(cards))


def _ebs(entry: Entry) -> int:
    rates = entry.get("EbsInfo", {}).get("EbsOptimizedInfo", {})
    return cast("int", rates.get("MaximumBandwidthInMbps", 0))


def _local_nvme(entry: Entry) -> int:
    storage = entry.get("InstanceStorageInfo", {})
    is_nvme = storage.get("NvmeSupport", "unsupported") != "unsupported"
    return cast("int", storage.get("TotalSizeInGB", 0) if is_nvme else 0)


def _gpu(entry: Entry) -> GpuFacts | None:
    gpus = entry.get("GpuInfo", {}).get("Gpus", ())
    if not gpus:
        return None
    first, count = gpus[0], sum(gpu.get("Count", 0) for gpu in gpus)
    memory = first.get("MemoryInfo", {}).get("SizeInMiB", 0)
    return GpuFacts(_word(first["Name"]), count, memory, first["Manufacturer"].lower())


def _accelerator(entry: Entry) -> AcceleratorFacts | None:
    neuron = entry.get("NeuronInfo", {}).get("NeuronDevices", ())
    inference = entry.get("InferenceAcceleratorInfo", {}).get("Accelerators", ())
    for device in (*neuron, *inference):
        return AcceleratorFacts(_word(device["Name"]), device["Count"])
    return None


def _word(name: str) -> str:
    return "-".join(name.lower().split())


def enabled_regions(door: Door, region: str) -> tuple[str, ...]:
    """Return the regions that the account may use; `region` is the one to ask."""
    return tuple(one["RegionName"] for one in door.call("ec2", region, "describe_regions")["Regions"])


def region_answer(door: Door, region: str) -> RegionAnswer:
    """Return what EC2 says of its types in a region, and of where it offers them."""
    return RegionAnswer(region_types(door, region), region_offers(door, region))


def region_types(door: Door, region: str) -> dict[str, InstanceFacts]:
    """Return the facts of the types that a region has, by name."""
    pages = door.pages("ec2", region, "describe_instance_types")
    facts = (read_instance(entry) for page in pages for entry in page["InstanceTypes"])
    return {one.name: one for one in facts if one}


def region_offers(door: Door, region: str) -> dict[str, str]:
    """Return the letters of the zones by type; Local Zones and Wavelength Zones are no zones of a fleet."""
    zone, letters = re.compile(rf"{region}([a-z])"), defaultdict(set)
    for page in door.pages("ec2", region, "describe_instance_type_offerings", LocationType="availability-zone"):
        for offer in page["InstanceTypeOfferings"]:
            if found := zone.fullmatch(offer["Location"]):
                letters[offer["InstanceType"]].add(found[1])
    return {name: "".join(sorted(found)) for name, found in letters.items()}


# The price list is served from few regions, for all; this one has always been among them.
_SERVED_FROM = "us-east-1"
_WANTED: Mapping[str, str] = MappingProxyType(
    {
        "operatingSystem": "Linux",
        "tenancy": "Shared",
        "preInstalledSw": "NA",
        "capacitystatus": "Used",
        "operation": "RunInstances",
    }
)
_HOUR = "Hrs"


def list_prices(door: Door, region: str) -> dict[str, float]:
    """Return USD an hour by instance type for machines of a region; of two prices of one type, the higher."""
    prices: dict[str, float] = {}
    wanted = {**_WANTED, "regionCode": region}
    filters = [{"Type": "TERM_MATCH", "Field": field, "Value": value} for field, value in wanted.items()]
    for page in door.pages("pricing", _SERVED_FROM, "get_products", ServiceCode="AmazonEC2", Filters=filters):
        for product in map(json.loads, page["PriceList"]):
            for price in _hourly(product):
                name = product["product"]["attributes"]["instanceType"]
                prices[name] = max(price, prices.get(name, 0))
    return prices


def _hourly(product: Mapping[str, Any]) -> Iterator[float]:
    """Yield what an hour costs; a price of nothing is a placeholder of AWS's."""
    for term in product.get("terms", {}).get("OnDemand", {}).values():
        for dimension in term["priceDimensions"].values():
            price = float(dimension["pricePerUnit"].get("USD", 0))
            if dimension["unit"] == _HOUR and price:
                yield price


Values = dict[tuple[str, str], float]


def granted(door: Door, needs: Iterable[Need]) -> Answers[Values]:
    """Return by region what the account has of each quota needed there, by region and the quota's code."""
    wanted = tuple(needs)

    def ask(region: str) -> Values:
        return dict(_of_region(door, region, [need for need in wanted if need.region == region]))

    return ask_regions((need.region for need in wanted), ask)


def _of_region(door: Door, region: str, needs: list[Need]) -> Iterator[tuple[tuple[str, str], float]]:
    for service in dict.fromkeys(need.quota.service for need in needs):
        codes = {need.quota.code for need in needs if need.quota.service == service}
        listed = {code: value for code, value in _listed(door, region, service) if code in codes}
        yield from (((region, code), value) for code, value in listed.items())
        for code in sorted(codes - listed.keys()):
            if (value := _default(door, region, service, code)) is not None:
                yield (region, code), value


def _listed(door: Door, region: str, service: str) -> Iterator[tuple[str, float]]:
    try:
        for page in door.pages("service-quotas", region, "list_service_quotas", ServiceCode=service):
            yield from ((quota["QuotaCode"], quota["Value"]) for quota in page["Quotas"] if "Value" in quota)
    except NotThere:
        return


def _default(door: Door, region: str, service: str, code: str) -> float | None:
    """Return AWS's own value: it holds where the account was never granted another, and is not listed then."""
    asked = {"ServiceCode": service, "QuotaCode": code}
    try:
        reply = door.call("service-quotas", region, "get_aws_default_service_quota", **asked)
    except NotThere:
        return None
    value: float | None = reply["Quota"].get("Value")
    return value
