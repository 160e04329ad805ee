"""EC2's own words on instance types, read as the catalogue tells them."""

import gzip
import json
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import moto.ec2
import pytest
from moto import mock_aws

from bedplate.account.door import Door, opened_session
from bedplate.account.instances import read_instance
from bedplate.account.offers import enabled_regions, region_offers
from bedplate.catalog import InstanceFacts, load_catalog
from bedplate.rehearsal.moto_stock import empty_stock

RECORDED: dict[str, Any] = json.loads(
    gzip.decompress((Path(moto.ec2.__file__).parent / "resources" / "instance_types.json.gz").read_bytes())
)
SMALL = "ap-southeast-5"
# Where our source is behind EC2's own words, or rounds them; a figure that it lacks is not held against it.
BEHIND = {
    "network_mbps": {"g7.2xlarge", "g7.4xlarge", "g7.8xlarge", "i7i.12xlarge", "i8g.12xlarge", "i8g.metal-48xl"}
    | {f"{family}.{size}" for family in ("i7ie", "i8ge") for size in ("48xlarge", "metal-48xl")},
    "interfaces_per_card": {f"{family}.{size}" for family in ("i7ie", "i8ge") for size in ("48xlarge", "metal-48xl")},
}


@pytest.mark.parametrize("figure", [field.name for field in fields(InstanceFacts)])
def test_ec2_s_words_read_as_the_shipped_catalogue(figure: str) -> None:
    """A refresh must not turn a figure into another that means something else."""
    shipped = load_catalog().types
    read = {name: read_instance(RECORDED[name]) for name in shipped.keys() & RECORDED.keys()}

    differing = {name for name, facts in read.items() if getattr(facts, figure) != getattr(shipped[name], figure)}

    assert {name for name in differing if getattr(shipped[name], figure)} == BEHIND.get(figure, set())


def test_a_mac_is_no_type_of_ours() -> None:
    """Its architecture runs nothing that a fleet runs."""
    assert read_instance(RECORDED["mac1.metal"]) is None


def test_what_ec2_leaves_out_is_not_guessed() -> None:
    """An entry with no more than EC2 always tells."""
    entry = {
        "InstanceType": "x9.large",
        "ProcessorInfo": {"SupportedArchitectures": ["arm64"]},
        "VCpuInfo": {"DefaultVCpus": 2},
        "MemoryInfo": {"SizeInMiB": 4096},
    }

    assert read_instance(entry) == InstanceFacts("x9.large", "arm64", 2, 4096, hypervisor="")


@pytest.fixture
def simulated() -> Iterator[None]:
    """Run a simulated AWS without the thousands of images that moto would bring."""
    with empty_stock(), mock_aws():
        yield


def test_a_region_s_offers_read_as_the_shipped_catalogue(simulated: None) -> None:
    """Asked of the simulated EC2, through the real door."""
    catalog, door = load_catalog(), Door(opened_session())

    offers = region_offers(door, SMALL)

    assert offers == {name: offered[SMALL] for name, offered in catalog.offers.items() if SMALL in offered}
    assert catalog.regions.keys() <= set(enabled_regions(door, "us-east-1"))
