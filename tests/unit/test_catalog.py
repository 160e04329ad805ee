"""The catalogue as a value, and the one that is shipped."""

import gzip
import json
import re
from collections.abc import Callable
from dataclasses import replace
from datetime import date
from functools import cache
from pathlib import Path
from time import process_time
from typing import Any

import moto.ec2
import pytest
from moto.ec2.models.availability_zones_and_regions import RegionsAndZonesBackend

from bedplate.catalog import Catalog, InstanceFacts, RegionFacts, load_catalog
from bedplate.catalog.catalog import (
    FOLDER,
    RENEWED,
    Change,
    RegionAnswer,
    changes,
    check_whole,
    renewed,
    rewritten,
    shipped,
)
from bedplate.catalog.facts import AcceleratorFacts, GpuFacts
from bedplate.catalog.nearest import edits, nearest
from bedplate.catalog.tables import (
    Sheet,
    read_instances,
    read_offers,
    read_prices,
    read_sheet,
    write_instances,
    write_offers,
    write_prices,
    write_sheet,
)
from bedplate.errors import ViolationError
from tests.testlab.run import pace

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


TYPES = load_catalog().types
REGIONS = load_catalog().regions


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("p5.49xlarge", "p5.48xlarge"),
        ("p5.48large", "p5.48xlarge"),
        ("P5.48xlarge", "p5.48xlarge"),
        ("p4d.xlarge", "p4d.24xlarge"),
        ("g5.xlareg", "g5.xlarge"),
        ("m5large", "m5.large"),
    ],
)
def test_an_instance_type_is_found(typed: str, meant: str) -> None:
    """Slips of the hand lead to the type that was meant, not to another size of it."""
    assert nearest(typed, TYPES) == meant


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("us-esat-1", "us-east-1"),
        ("eu-nort-1", "eu-north-1"),
        ("us_west_2", "us-west-2"),
        ("useast1", "us-east-1"),
    ],
)
def test_a_region_is_found(typed: str, meant: str) -> None:
    """Swapped, dropped and replaced letters all count as one slip."""
    assert nearest(typed, REGIONS) == meant


@pytest.mark.parametrize("typed", ["", "zzz", "atlantis", "é" * 200])
def test_nothing_near_is_nothing(typed: str) -> None:
    """A far-fetched suggestion is worse than none."""
    assert nearest(typed, REGIONS) is None


def test_the_order_of_the_words_does_not_matter() -> None:
    """Messages are compared from run to run, so ties always fall the same way."""
    assert nearest("node", ["nods", "nodd"]) == nearest("node", ["nodd", "nods"]) == "nodd"


@pytest.mark.parametrize(
    ("one", "other", "slips"),
    [
        ("", "", 0),
        ("abc", "abc", 0),
        ("abc", "ab", 1),
        ("abc", "acb", 1),
        ("abc", "xbc", 1),
        ("kitten", "sitting", 3),
    ],
)
def test_slips_are_counted(one: str, other: str, slips: int) -> None:
    """A letter added, dropped or mistyped is one slip, and so are two that swapped places."""
    assert edits(one, other) == edits(other, one) == slips


REWRITTEN = {
    "instances": lambda rows: write_instances(read_instances(rows).values()),
    "offers": lambda rows: write_offers(read_offers(rows)),
    "prices": lambda rows: write_prices(read_prices(rows)),
}

CATALOG_TEXT_TYPES = (
    InstanceFacts(name="a9.metal", arch="arm64", vcpus=64, memory_mib=131072, hypervisor=""),
    InstanceFacts(
        name="p9.48xlarge",
        arch="x86_64",
        vcpus=192,
        memory_mib=2097152,
        network_mbps=3200000,
        interfaces_per_card=(1, 2, 2),
        efa=2,
        gpu=GpuFacts(name="h900", count=8, memory_mib=81920, manufacturer="nvidia"),
    ),
    InstanceFacts(
        name="trn9.large", arch="x86_64", vcpus=2, memory_mib=1, accelerator=AcceleratorFacts("trainium9", 16)
    ),
)


@pytest.mark.parametrize("name", sorted(REWRITTEN))
def test_the_shipped_files_are_as_their_writer_leaves_them(name: str) -> None:
    """A refresh then changes the lines that AWS changed, and no others."""
    sheet = shipped(name)

    assert write_sheet(sheet.heading, REWRITTEN[name](sheet.rows)) == (FOLDER / f"{name}.txt").read_text()


def test_instance_types_read_back() -> None:
    """Unstated figures, bare metal, uneven cards, GPUs and accelerators all survive the text."""
    assert tuple(read_instances(write_instances(CATALOG_TEXT_TYPES)).values()) == CATALOG_TEXT_TYPES


def test_equal_cards_are_told_as_one_run() -> None:
    """32 cards alike are four characters, not a line of their own."""
    row = write_instances(CATALOG_TEXT_TYPES)[2]

    assert "\t1x1,2x2\t" in row


def test_other_columns_are_refused() -> None:
    """Cells are known by their place, so a file with other columns must not be read at all."""
    with pytest.raises(ValueError, match="the columns must be type, arch"):
        read_instances(["type\tvcpus", "m5.large\t2"])


def test_a_family_alike_is_one_row_a_region() -> None:
    """Only sizes that differ are named, so that a diff is as short as what AWS changed."""
    offers = {
        "g9.large": {"xx-north-1": "ab", "xx-south-1": "a"},
        "g9.metal": {"xx-north-1": "ab", "xx-south-1": "c"},
        "h9.large": {},
    }

    rows = write_offers(offers)

    assert rows == (
        "g9 large metal",
        "  xx-north-1 ab",
        "  xx-south-1 a large",
        "  xx-south-1 c metal",
        "h9 large",
    )
    assert read_offers(rows) == offers


def test_prices_read_back_to_the_last_digit() -> None:
    """A price is not rounded on its way through the file."""
    prices = {"m9.large": 0.0042, "p9.48xlarge": 113.93287}

    assert read_prices(write_prices(prices)) == prices


def test_a_heading_may_hold_colons() -> None:
    """Sources are prose and addresses, both of which have colons in them."""
    heading = {"date": "2026-01-01", "source": "zones: https://example.com"}

    sheet = read_sheet(write_sheet(heading, ["a\t1"]))

    assert (sheet.heading, sheet.rows) == (heading, ("a\t1",))


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


NORTH, SOUTH = "xx-north-1", "xx-south-1"


def _facts(name: str, vcpus: int = 2) -> InstanceFacts:
    return InstanceFacts(name, "x86_64", vcpus, 4096)


KNOWN = Catalog(
    regions={name: RegionFacts(name, (f"{name}a",), opt_in=False) for name in (NORTH, SOUTH)},
    types={name: _facts(name) for name in ("a9.large", "b9.large", "c9.large")},
    offers={"a9.large": {NORTH: "ab", SOUTH: "a"}, "b9.large": {NORTH: "a"}, "c9.large": {}},
    prices={"a9.large": 1.0},
)


def test_a_region_that_was_asked_tells_all_of_its_offers() -> None:
    """Zones come and go; the other region's stay as they were."""
    answer = RegionAnswer({"a9.large": _facts("a9.large")}, {"a9.large": "bc", "d9.large": "a"})

    offers = renewed(KNOWN, {NORTH: answer}, {}).offers

    assert offers == {"a9.large": {NORTH: "bc", SOUTH: "a"}, "c9.large": {}, "d9.large": {NORTH: "a"}}


@pytest.mark.parametrize(
    ("asked", "gone"),
    [((SOUTH,), set()), ((NORTH,), {"b9.large"}), ((NORTH, SOUTH), {"a9.large", "b9.large", "c9.large"})],
)
def test_a_type_goes_when_nobody_is_left_who_might_tell_of_it(asked: tuple[str, ...], gone: set[str]) -> None:
    """A region that was not asked may still have it; one that nobody offers needs the silence of all."""
    silent = dict.fromkeys(asked, RegionAnswer({}, {}))

    assert KNOWN.types.keys() - renewed(KNOWN, silent, {}).types.keys() == gone


def test_changes_are_counted() -> None:
    """Offers region by region, types and prices over all."""
    answer = RegionAnswer({"a9.large": _facts("a9.large", 4), "d9.large": _facts("d9.large")}, {"a9.large": "ab"})

    after = renewed(KNOWN, {NORTH: answer}, {"a9.large": 2.0, "d9.large": 1.0})

    assert tuple(changes(KNOWN, after)) == (
        Change("instance types", 3, 1, 1, 1),
        Change("prices", 1, 1, 1, 0),
        Change(f"offers in {NORTH}", 2, 0, 0, 1),
        Change(f"offers in {SOUTH}", 1, 0, 0, 0),
    )


@pytest.mark.parametrize(("dropped", "is_large"), [(0, False), (10, False), (11, True), (100, True)])
def test_more_than_a_tenth_gone_is_not_believed(dropped: int, is_large: bool) -> None:  # noqa: FBT001  the rule's two sides
    """An answer that was cut short looks like that."""
    assert Change("prices", 100, 500, 500, dropped).is_large is is_large


def test_a_cut_answer_names_what_would_be_lost() -> None:
    """And how to insist, in case AWS did drop it."""
    with pytest.raises(ViolationError, match=f"20 of 100 offers in {NORTH}") as refused:
        check_whole((Change("prices", 100, 0, 0, 0), Change(f"offers in {NORTH}", 100, 0, 0, 20)))

    assert "--force" in refused.value.fix


def test_the_same_facts_make_the_same_rows() -> None:
    """A refresh without news changes the headings alone."""
    before = {name: shipped(name) for name in RENEWED}
    catalog = load_catalog()

    texts = rewritten(before, catalog, catalog.regions, date(2027, 1, 2))

    for name, text in texts.items():
        rows = [line for line in text.splitlines() if not line.startswith("#")]
        assert tuple(rows) == before[name].rows
        assert text.startswith("# date: 2027-01-02\n# source: ")


@pytest.mark.parametrize(
    ("asked", "source"),
    [
        ((NORTH,), f"EC2 DescribeInstanceTypes, asked in {NORTH}; the others as of 2026"),
        ((SOUTH, NORTH), f"EC2 DescribeInstanceTypes, asked in {NORTH}, {SOUTH}"),
    ],
)
def test_the_heading_says_who_was_asked(asked: tuple[str, ...], source: str) -> None:
    """A date of today must not cover facts of last year."""
    old = Sheet({"date": "2026", "source": "elsewhere", "unit": "letters"}, ())

    text = rewritten(dict.fromkeys(RENEWED, old), replace(KNOWN, offers={}), asked, date(2027, 1, 2))["instances"]

    assert f"# source: {source}\n# unit: letters\n" in text
