"""The catalogue as a value, and the one that is shipped."""

import re
from time import process_time

import pytest

from bedplate.catalog import Catalog, InstanceFacts, RegionFacts, load_catalog
from bedplate.catalog.shipped import shipped
from tests.support.pace import pace

TYPE_NAME = re.compile(r"[a-z][a-z0-9-]*\.(nano|micro|small|medium|large|\d*xlarge|metal(-\d+xl)?)")
REGION_NAME = re.compile(r"[a-z]{2}-[a-z]+-\d")
SHEETS = ("drivers", "gpus", "instances", "kubernetes", "offers", "prices", "regions", "timezones")


@pytest.fixture
def catalog() -> Catalog:
    """Give the shipped catalogue."""
    return load_catalog()


def test_a_catalogue_is_built_from_a_few_facts() -> None:
    """Tests and benchmarks make their own world: no file is needed for it."""
    region = RegionFacts(name="xx-test-1", zones=("xx-test-1a", "xx-test-1b"), opt_in=False)
    machine = InstanceFacts(name="m9.large", arch="arm64", vcpus=2, memory_mib=8192)

    catalog = Catalog(
        regions={region.name: region},
        types={machine.name: machine},
        offers={"m9.large": {"xx-test-1": "b"}},
        prices={"m9.large": 0.5},
    )

    assert catalog.offered("m9.large", "xx-test-1") == ("xx-test-1b",)
    assert catalog.regions_offering("m9.large") == ("xx-test-1",)
    assert catalog.price("m9.large") == 0.5


def test_what_is_not_known_is_empty_not_an_error(catalog: Catalog) -> None:
    """Checks ask about names an operator typed, so an unknown one must not crash them."""
    assert catalog.offered("p5.48xlarge", "us-moon-1") == ()
    assert catalog.offered("p5.49xlarge", "us-east-1") == ()
    assert catalog.regions_offering("p5.49xlarge") == ()
    assert catalog.price("p5.49xlarge") is None


def test_offers_are_full_zone_names_in_order(catalog: Catalog) -> None:
    """A zone is named as AWS names it, so that it can be compared with the fleet file's."""
    assert catalog.offered("g6.4xlarge", "us-west-2") == tuple(f"us-west-2{letter}" for letter in "abcd")


@pytest.mark.parametrize("name", SHEETS)
def test_every_sheet_says_when_whence_and_in_what_unit(name: str) -> None:
    """A dated fact without its date and source cannot be judged."""
    heading = shipped(name).heading

    assert re.fullmatch(r"20\d\d(-\d\d-\d\d)?", heading["date"])
    assert heading["source"]
    assert heading["unit"]


def test_the_catalogue_carries_the_dates_of_its_facts(catalog: Catalog) -> None:
    """Whoever reads a price is told of which day and region it is."""
    assert catalog.date == "2026-08-06"
    assert (catalog.price_date, catalog.price_region) == ("2026-07-20", "us-east-1")


def test_every_region_is_well_formed(catalog: Catalog) -> None:
    """A region has two zones at least, in order, each named after it, and a place."""
    for name, region in catalog.regions.items():
        assert REGION_NAME.fullmatch(name)
        assert region.place
        assert len(region.zones) >= 2
        assert list(region.zones) == sorted(set(region.zones))
        assert all(re.fullmatch(rf"{name}[a-f]", zone) for zone in region.zones)


def test_every_instance_type_is_well_formed(catalog: Catalog) -> None:
    """Figures are positive, and cards hold what the type holds in all."""
    for name, instance in catalog.types.items():
        assert TYPE_NAME.fullmatch(name)
        assert instance.arch in {"x86_64", "arm64"}
        assert min(instance.vcpus, instance.memory_mib) > 0
        assert instance.hypervisor in {"nitro", "xen", ""}
        assert instance.gpu is None or (instance.gpu.memory_mib > 0 and instance.gpu.name)
        assert instance.efa <= instance.interfaces or not instance.interfaces


def test_every_offer_is_in_a_known_zone(catalog: Catalog) -> None:
    """An offer outside the listed zones would place a pool where no subnet can be."""
    for name, regions in catalog.offers.items():
        assert TYPE_NAME.fullmatch(name)
        for region in regions:
            assert set(catalog.offered(name, region)) <= set(catalog.regions[region].zones)


def test_every_price_is_of_a_type_and_plausible(catalog: Catalog) -> None:
    """A price is USD an hour: below 0.003 or above 500 it would be in another unit."""
    for name, price in catalog.prices.items():
        assert TYPE_NAME.fullmatch(name)
        assert 0.003 < price < 500


def test_bare_metal_sizes_have_no_hypervisor(catalog: Catalog) -> None:
    """What starts slowly and cannot be resized is told by the hypervisor alone."""
    metal = {name for name in catalog.types if ".metal" in name}

    assert metal
    assert metal == {name for name, instance in catalog.types.items() if not instance.hypervisor}


def test_reading_the_catalogue_is_quick() -> None:
    """Every command reads it: 40 ms of a core at full speed is the most it may take."""
    taken = []
    for _ in range(3):  # the collector of a large test process may look in between
        start = process_time()
        load_catalog.__wrapped__()
        taken.append(process_time() - start)

    assert min(taken) < 0.04 * pace()


def test_every_nvidia_gpu_of_ec2_has_its_generation(catalog: Catalog) -> None:
    """A GPU that the driver's table lacks would be judged by nobody."""
    gpus = {facts.gpu.name for facts in catalog.types.values() if facts.gpu and facts.gpu.manufacturer == "nvidia"}

    assert gpus <= set(catalog.chips)


def test_the_newest_branch_that_is_mended_runs_every_gpu_with_open_modules(catalog: Catalog) -> None:
    """Whatever type is wanted, there is a branch to write."""
    newest = max(facts.branch for facts in catalog.drivers.values())

    assert all(chip.first <= newest for chip in catalog.chips.values())
    assert {chip.generation for chip in catalog.chips.values() if not chip.open} == {"volta"}


@pytest.mark.parametrize("zone", ["UTC", "Europe/Zurich", "America/Argentina/Buenos_Aires", "Etc/GMT+9"])
def test_a_time_zone_is_known_by_its_whole_name(catalog: Catalog, zone: str) -> None:
    """Areas within areas too."""
    assert zone in catalog.time_zones
