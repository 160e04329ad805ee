"""Facts that AWS and others publish: Ubuntu images, instance types, zones, prices, quotas, and small public pages."""

import json
import re
import subprocess
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, date, datetime
from http.client import HTTPException
from itertools import chain, pairwise
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Any, cast
from urllib.request import urlopen

from bedplate.account.client import AwsClient, NotThere, RegionResults, ask_regions, require_all
from bedplate.catalog.catalog import RegionAnswer
from bedplate.catalog.keys import PublicKey
from bedplate.catalog.tables import AcceleratorFacts, Arch, GpuFacts, InstanceFacts
from bedplate.errors import MachineError, PartialError
from bedplate.plan.cost import QuotaNeed
from bedplate.plan.planner import IMAGE_ID, image_parameter

_DOWNLOAD_SECONDS = 30
_LONGEST_PAGE = 4_000_000


def newest_images(client: AwsClient, places: Iterable[str]) -> Mapping[str, str]:
    """Return the newest image of each `region/architecture`; raises if any region has none."""
    split_places = [place.split("/") for place in places]

    def ask(region: str) -> dict[str, str]:
        return {f"{region}/{arch}": _image(client, region, arch) for name, arch in split_places if name == region}

    answers = require_all(ask_regions((region for region, _ in split_places), ask), "nothing was recorded")
    return dict(chain.from_iterable(images.items() for images in answers.values()))


def _image(client: AwsClient, region: str, arch: str) -> str:
    name = image_parameter(arch)
    value: str = client.call("ssm", region, "get_parameter", Name=name)["Parameter"]["Value"]
    if not IMAGE_ID.fullmatch(value):
        raise PartialError(
            f"the SSM parameter {name} holds no image id",
            fix=f"check `aws ssm get-parameter --region {region} --name {name}`",
        )
    return value


Entry = Mapping[str, Any]

_ARCHITECTURES = ("x86_64", "arm64")
# `200 Gigabit`, `4x 100 Gigabit`; `Up to 10 Gigabit` is a burst.
_RATE = re.compile(r"(?:(\d+)x )?([\d.]+) Gigabit")


def read_instance(entry: Entry) -> InstanceFacts | None:
    """Return the facts of an instance type; None for a Mac, whose architecture is not supported."""
    architectures = [arch for arch in entry["ProcessorInfo"]["SupportedArchitectures"] if arch in _ARCHITECTURES]
    if not architectures:
        return None
    network = entry.get("NetworkInfo", {})
    return InstanceFacts(
        name=entry["InstanceType"],
        arch=cast("Arch", architectures[-1]),
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
    """Return the sustained rate in Mbit/s: EC2's figure for the type, else the sum of its network cards."""
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


def read_region(client: AwsClient, region: str) -> RegionAnswer:
    """Return the instance types of a region, and the zones that offer them."""
    return RegionAnswer(region_types(client, region), region_offers(client, region))


def region_types(client: AwsClient, region: str) -> dict[str, InstanceFacts]:
    """Return the facts of a region's instance types, by name."""
    facts = map(read_instance, client.items("ec2", region, "describe_instance_types", "InstanceTypes"))
    return {instance.name: instance for instance in facts if instance}


def region_offers(client: AwsClient, region: str) -> dict[str, str]:
    """Return the letters of the zones by type; Local Zones and Wavelength Zones are not supported."""
    zone, letters = re.compile(rf"{region}([a-z])"), defaultdict(set)
    operation, query = "describe_instance_type_offerings", {"LocationType": "availability-zone"}
    for offer in client.items("ec2", region, operation, "InstanceTypeOfferings", **query):
        if match := zone.fullmatch(offer["Location"]):
            letters[offer["InstanceType"]].add(match[1])
    return {name: "".join(sorted(zones)) for name, zones in letters.items()}


# A few regions serve the price list for all; this one has always been among them.
_PRICING_REGION = "us-east-1"
_PRODUCT: Mapping[str, str] = MappingProxyType(
    {
        "operatingSystem": "Linux",
        "tenancy": "Shared",
        "preInstalledSw": "NA",
        "capacitystatus": "Used",
        "operation": "RunInstances",
    }
)
_HOUR = "Hrs"


def list_prices(client: AwsClient, region: str) -> dict[str, float]:
    """Return USD an hour by instance type in a region; the higher of two prices of one type."""
    prices: dict[str, float] = {}
    product = {**_PRODUCT, "regionCode": region}
    filters = [{"Type": "TERM_MATCH", "Field": field, "Value": value} for field, value in product.items()]
    query = {"ServiceCode": "AmazonEC2", "Filters": filters}
    for text in client.items("pricing", _PRICING_REGION, "get_products", "PriceList", **query):
        entry = json.loads(text)
        for price in _hourly_prices(entry):
            name = entry["product"]["attributes"]["instanceType"]
            prices[name] = max(price, prices.get(name, 0))
    return prices


def _hourly_prices(entry: Mapping[str, Any]) -> Iterator[float]:
    """Yield the hourly prices of a price list entry; a price of 0 is a placeholder."""
    for term in entry.get("terms", {}).get("OnDemand", {}).values():
        for dimension in term["priceDimensions"].values():
            price = float(dimension["pricePerUnit"].get("USD", 0))
            if dimension["unit"] == _HOUR and price:
                yield price


Values = dict[tuple[str, str], float]


def read_quotas(client: AwsClient, needs: Iterable[QuotaNeed]) -> RegionResults[Values]:
    """Return by region the account's value of each quota needed there, by region and quota code."""
    all_needs = tuple(need for need in needs if need.quota.code)

    def ask(region: str) -> Values:
        return dict(_of_region(client, region, [need for need in all_needs if need.region == region]))

    return ask_regions((need.region for need in all_needs), ask)


def _of_region(client: AwsClient, region: str, needs: list[QuotaNeed]) -> Iterator[tuple[tuple[str, str], float]]:
    for service in dict.fromkeys(need.quota.service for need in needs):
        codes = {need.quota.code for need in needs if need.quota.service == service}
        listed = {code: value for code, value in _list_quotas(client, region, service) if code in codes}
        yield from (((region, code), value) for code, value in listed.items())
        for code in sorted(codes - listed.keys()):
            if (value := _default_quota(client, region, service, code)) is not None:
                yield (region, code), value


def _list_quotas(client: AwsClient, region: str, service: str) -> Iterator[tuple[str, float]]:
    try:
        quotas = client.items("service-quotas", region, "list_service_quotas", "Quotas", ServiceCode=service)
        yield from ((quota["QuotaCode"], quota["Value"]) for quota in quotas if "Value" in quota)
    except NotThere:
        return


def _default_quota(client: AwsClient, region: str, service: str, code: str) -> float | None:
    """Return AWS's default, which applies to a quota that is not listed for the account."""
    query = {"ServiceCode": service, "QuotaCode": code}
    reply = client.find("service-quotas", region, "get_aws_default_service_quota", **query)
    return reply["Quota"].get("Value") if reply else None


def read_public_key(text: str) -> PublicKey:
    """Return what gpg reads from the text of public keys. Raises MachineError without gpg."""
    with TemporaryDirectory(prefix="bedplate-") as folder:
        command = ("gpg", "--homedir", folder, "--batch", "--with-colons", "--show-keys")
        try:
            done = subprocess.run(command, input=text.encode(), capture_output=True, check=False)  # noqa: S603
        except FileNotFoundError:
            raise MachineError(
                "gpg not found: keys cannot be compared", fix="install gnupg, and run it again"
            ) from None
    rows = [line.split(":") for line in done.stdout.decode().splitlines()]
    primary = frozenset(after[_ID] for row, after in pairwise(rows) if row[0] == "pub" and after[0] == "fpr")
    subkeys = (_end(row) for row in rows if row[0] == "sub" and "s" in row[_USES])
    last = min((*(_end(row) for row in rows if row[0] == "pub"), max(subkeys, default=date.max)), default=date.max)
    return PublicKey(primary, None if last == date.max else last)


def _end(row: list[str]) -> date:
    """Return the day on which a key ends; the last day of the calendar without one."""
    return datetime.fromtimestamp(int(row[_ENDS]), UTC).date() if row[_ENDS] else date.max


# Fields of gpg's output. Source: doc/DETAILS of GnuPG, "Format of the colon listings".
_ENDS, _ID, _USES = 6, 9, 11


def download(url: str) -> str:
    """Return the text of an https address; PartialError if it cannot be read."""
    try:
        with urlopen(url, timeout=_DOWNLOAD_SECONDS) as reply:  # noqa: S310  # addresses of the catalog
            text: str = reply.read(_LONGEST_PAGE).decode()
    except (OSError, HTTPException, UnicodeDecodeError) as error:
        reason = getattr(error, "reason", error)
        raise PartialError(f"cannot read {url}: {reason}", fix="check the connection, and run it again") from None
    return text
