"""The catalog: its facts, similar words, data files, agreement with moto, and refreshing."""

import gzip
import json
import re
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from functools import cache
from hashlib import sha256
from pathlib import Path
from time import process_time
from typing import Any

import moto.ec2
import pytest
from moto.ec2.models.availability_zones_and_regions import RegionsAndZonesBackend

from bedplate.account.facts import read_public_key
from bedplate.catalog import Catalog, InstanceFacts, RegionFacts, load_catalog
from bedplate.catalog.catalog import (
    FOLDER,
    Change,
    RegionAnswer,
    changes,
    check_whole,
    key_text,
    read_data_file,
    refreshed,
)
from bedplate.catalog.keys import PublicKey, read_keys, write_keys
from bedplate.catalog.software import EFA_SUM, NVIDIA_KEY_SUM, read_software, with_published, write_software
from bedplate.catalog.tables import (
    AcceleratorFacts,
    GpuFacts,
    read_instances,
    read_kernel,
    read_offers,
    read_prices,
    read_sheet,
    write_instances,
    write_offers,
    write_prices,
    write_sheet,
)
from bedplate.checks.lifetimes import NOTICE
from bedplate.errors import ViolationError, edits, nearest
from bedplate.load import examine
from bedplate.load.source import today
from tests.testlab.rehearsal.programs import EXAMPLES
from tests.testlab.run import need_program, pace

TYPE_NAME = re.compile(r"[a-z][a-z0-9-]*\.(nano|micro|small|medium|large|\d*xlarge|metal(-\d+xl)?)")
REGION_NAME = re.compile(r"[a-z]{2}-[a-z]+-\d")
SHEETS = ("drivers", "gpus", "instances", "kubernetes", "offers", "prices", "regions", "software", "timezones")


@pytest.fixture
def catalog() -> Catalog:
    """Return the catalog of the data files."""
    return load_catalog()


def test_a_catalogue_is_built_from_a_few_facts() -> None:
    """Tests and benchmarks need no data files."""
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


def test_unknown_names_have_no_offers_and_no_price(catalog: Catalog) -> None:
    """Checks pass names from the fleet file, which may be misspelt."""
    assert catalog.offered("p5.48xlarge", "us-moon-1") == ()
    assert catalog.offered("p5.49xlarge", "us-east-1") == ()
    assert catalog.regions_offering("p5.49xlarge") == ()
    assert catalog.price("p5.49xlarge") is None


def test_offers_are_full_zone_names_in_order(catalog: Catalog) -> None:
    """They have the form of AWS and of the fleet file."""
    assert catalog.offered("g6.4xlarge", "us-west-2") == tuple(f"us-west-2{letter}" for letter in "abcd")


@pytest.mark.parametrize("name", SHEETS)
def test_every_data_file_has_date_source_and_unit(name: str) -> None:
    """Facts about AWS change, so readers need their date and source."""
    heading = read_data_file(name).heading

    assert re.fullmatch(r"20\d\d(-\d\d-\d\d)?", heading["date"])
    assert heading["source"]
    assert heading["unit"]


def test_the_catalogue_carries_the_dates_of_its_facts(catalog: Catalog) -> None:
    """Reports show the date and region of a price."""
    assert catalog.date == "2026-08-06"
    assert (catalog.price_date, catalog.price_region) == ("2026-07-20", "us-east-1")


def test_every_region_is_well_formed(catalog: Catalog) -> None:
    """A region has a location and at least two zones, sorted and named after the region."""
    for name, region in catalog.regions.items():
        assert REGION_NAME.fullmatch(name)
        assert region.place
        assert len(region.zones) >= 2
        assert list(region.zones) == sorted(set(region.zones))
        assert all(re.fullmatch(rf"{name}[a-f]", zone) for zone in region.zones)


def test_every_instance_type_is_well_formed(catalog: Catalog) -> None:
    """Numbers are positive, and a type has no more EFA interfaces than interfaces."""
    for name, instance in catalog.types.items():
        assert TYPE_NAME.fullmatch(name)
        assert instance.arch in {"x86_64", "arm64"}
        assert min(instance.vcpus, instance.memory_mib) > 0
        assert instance.hypervisor in {"nitro", "xen", ""}
        assert instance.gpu is None or (instance.gpu.memory_mib > 0 and instance.gpu.name)
        assert instance.efa <= instance.interfaces or not instance.interfaces


def test_every_offer_is_in_a_known_zone(catalog: Catalog) -> None:
    """A pool in another zone would have no subnet."""
    for name, regions in catalog.offers.items():
        assert TYPE_NAME.fullmatch(name)
        for region in regions:
            assert set(catalog.offered(name, region)) <= set(catalog.regions[region].zones)


def test_every_price_is_of_a_type_and_plausible(catalog: Catalog) -> None:
    """A price below 0.003 or above 500 would not be USD per hour."""
    for name, price in catalog.prices.items():
        assert TYPE_NAME.fullmatch(name)
        assert 0.003 < price < 500


def test_bare_metal_sizes_have_no_hypervisor(catalog: Catalog) -> None:
    """The catalog marks bare metal by an empty hypervisor."""
    metal = {name for name in catalog.types if ".metal" in name}

    assert metal
    assert metal == {name for name, instance in catalog.types.items() if not instance.hypervisor}


def test_reading_the_catalogue_is_quick() -> None:
    """Every command reads it, so it may take at most 40 ms of a fast core."""
    seconds = []
    for _ in range(3):  # the garbage collector may run during one of them
        start = process_time()
        load_catalog.__wrapped__()
        seconds.append(process_time() - start)

    assert min(seconds) < 0.04 * pace()


def test_every_nvidia_gpu_of_ec2_has_its_generation(catalog: Catalog) -> None:
    """Otherwise no check compares it with the driver branch."""
    gpus = {facts.gpu.name for facts in catalog.types.values() if facts.gpu and facts.gpu.manufacturer == "nvidia"}

    assert gpus <= set(catalog.chips)


def test_the_newest_branch_supports_every_gpu_with_open_modules(catalog: Catalog) -> None:
    """Older generations than Turing have no open kernel modules, and branch 580 is their last."""
    newest = max(facts.branch for facts in catalog.drivers.values())

    assert all(chip.first <= newest for chip in catalog.chips.values())
    assert {(chip.generation, chip.last) for chip in catalog.chips.values() if not chip.open} == {
        ("pascal", 580),
        ("volta", 580),
    }


def test_every_stack_is_a_possible_set(catalog: Catalog) -> None:
    """Ubuntu has its driver branch, which builds on its kernel, with a Fabric Manager of the same version."""
    for software in catalog.software.values():
        driver = catalog.drivers[software.driver]

        assert driver.packaged == software.driver
        assert driver.kernel
        assert driver.kernel >= read_kernel(software.value("kernel"))
        assert software.value("fabric-manager") == software.value("driver")
        assert all(item.source.startswith("http") for item in software.items.values())


KEY = "-----BEGIN PGP PUBLIC KEY BLOCK-----"
EFA_PAGE = "<p>EFA 1.60.0</p> SHA256: <code>{new}</code> <p>EFA 1.50.0</p> MD5: {old:.32} SHA256: {old}"


def test_published_checksums_are_verified(catalog: Catalog) -> None:
    """Those of the EFA installer on AWS's page, and of the key; both are then written and read unchanged."""
    efa = catalog.software_set(None).value(EFA_SUM)

    sets = with_published(catalog.software, EFA_PAGE.format(new="0" * 64, old=efa), KEY)

    assert {software.checksum(EFA_SUM) for software in sets.values()} == {efa}
    assert {software.checksum(NVIDIA_KEY_SUM) for software in sets.values()} == {sha256(KEY.encode()).hexdigest()}
    assert read_software(write_software(sets)) == sets


def test_an_unpublished_checksum_stays_unverified(catalog: Catalog) -> None:
    """The page may lack an installer; the next entry's checksum is not taken for it."""
    page = f"EFA 1.50.0 EFA 1.49.0 SHA256: {'0' * 64}"

    assert with_published(catalog.software, page, KEY)["2026-11"].checksum(EFA_SUM) == ""


@pytest.mark.parametrize(("page", "key"), [(f"EFA 1.50.0 SHA256: {'0' * 64}", KEY), ("", "<html>")])
def test_another_checksum_is_refused(page: str, key: str, catalog: Catalog) -> None:
    """Either the download or the catalog is wrong, and an operator must decide."""
    with pytest.raises(ViolationError):
        with_published(catalog.software, page, key)


@pytest.mark.parametrize("zone", ["UTC", "Europe/Zurich", "America/Argentina/Buenos_Aires", "Etc/GMT+9"])
def test_time_zones_have_their_full_name(catalog: Catalog, zone: str) -> None:
    """Some full names have two slashes."""
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
def test_the_nearest_instance_type_is_found(typed: str, meant: str) -> None:
    """A misspelt size does not lead to another size."""
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
def test_the_nearest_region_is_found(typed: str, meant: str) -> None:
    """Letters may be swapped, omitted or replaced."""
    assert nearest(typed, REGIONS) == meant


@pytest.mark.parametrize("typed", ["", "zzz", "atlantis", "é" * 200])
def test_a_very_different_word_has_no_nearest_word(typed: str) -> None:
    """No suggestion is better than a wrong one."""
    assert nearest(typed, REGIONS) is None


def test_the_order_of_the_words_does_not_matter() -> None:
    """The same input always gives the same suggestion."""
    assert nearest("node", ["nods", "nodd"]) == nearest("node", ["nodd", "nods"]) == "nodd"


@pytest.mark.parametrize(
    ("word", "other", "distance"),
    [
        ("", "", 0),
        ("abc", "abc", 0),
        ("abc", "ab", 1),
        ("abc", "acb", 1),
        ("abc", "xbc", 1),
        ("kitten", "sitting", 3),
    ],
)
def test_the_edit_distance_counts_letters(word: str, other: str, distance: int) -> None:
    """One letter added, removed or replaced, or two neighbours swapped, count 1."""
    assert edits(word, other) == edits(other, word) == distance


REWRITTEN = {
    "instances": lambda rows: write_instances(read_instances(rows).values()),
    "offers": lambda rows: write_offers(read_offers(rows)),
    "prices": lambda rows: write_prices(read_prices(rows)),
}

SAMPLE_TYPES = (
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
def test_the_data_files_have_the_format_of_their_writer(name: str) -> None:
    """So a refresh changes only lines that AWS has changed."""
    sheet = read_data_file(name)

    assert write_sheet(sheet.heading, REWRITTEN[name](sheet.rows)) == (FOLDER / f"{name}.txt").read_text()


def test_written_instance_types_are_read_unchanged() -> None:
    """With missing numbers, bare metal, different network cards, GPUs and accelerators."""
    assert tuple(read_instances(write_instances(SAMPLE_TYPES)).values()) == SAMPLE_TYPES


def test_equal_network_cards_are_written_as_a_count() -> None:
    """32 cards with 2 interfaces are `32x2`."""
    row = write_instances(SAMPLE_TYPES)[2]

    assert "\t1x1,2x2\t" in row


def test_other_columns_are_rejected() -> None:
    """Cells are identified by position only."""
    with pytest.raises(ValueError, match="the columns must be type, arch"):
        read_instances(["type\tvcpus", "m5.large\t2"])


def test_a_family_with_equal_offers_has_one_row_per_region() -> None:
    """Sizes are named only if they differ, which keeps diffs short."""
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


def test_written_prices_are_read_unchanged() -> None:
    """A price is not rounded when it is written."""
    prices = {"m9.large": 0.0042, "p9.48xlarge": 113.93287}

    assert read_prices(write_prices(prices)) == prices


def test_a_heading_may_contain_colons() -> None:
    """Sources are text and URLs."""
    heading = {"date": "2026-01-01", "source": "zones: https://example.com"}

    sheet = read_sheet(write_sheet(heading, ["a\t1"]))

    assert (sheet.heading, sheet.rows) == (heading, ("a\t1",))


RESOURCES = Path(moto.ec2.__file__).parent / "resources"

# Zones with offers in moto that it does not list, because AWS shows them only to some accounts.
UNLISTED_ZONES = {"eu-west-2d"}

# Types without facts or network cards in our source.
WITHOUT_FACTS = ("mac", "r9g.", "r9gd.", "t8i.", "trn2.3xlarge", "trn2u.")
WITHOUT_CARDS = ("hpc6", "hpc7a", "hpc8", "trn2.48xlarge")

# Two cards in moto, one in our source, with the same number of interfaces. None of them is a GPU type.
CARDS_DIFFER = {"i7ie.48xlarge", "i7ie.metal-48xl", "i8ge.48xlarge", "i8ge.metal-48xl"}

# Types that moto does not have: the simulation rejects them.
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
    "vcpus": (lambda facts: facts.vcpus, lambda theirs: theirs["VCpuInfo"]["DefaultVCpus"]),
    "memory": (lambda facts: facts.memory_mib, lambda theirs: theirs["MemoryInfo"]["SizeInMiB"]),
    "arch": (lambda facts: facts.arch, lambda theirs: theirs["ProcessorInfo"]["SupportedArchitectures"][-1]),
    "hypervisor": (lambda facts: facts.hypervisor, lambda theirs: theirs.get("Hypervisor", "")),
    "efa": (
        lambda facts: facts.efa,
        lambda theirs: theirs["NetworkInfo"].get("EfaInfo", {}).get("MaximumEfaInterfaces", 0),
    ),
    "gpus": (
        lambda facts: facts.gpu and (facts.gpu.count, facts.gpu.memory_mib, facts.gpu.manufacturer),
        _gpus,
    ),
    "cards": (lambda facts: facts.interfaces_per_card, _cards),
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
def test_instance_types_agree_with_moto(figure: str) -> None:
    """If two sources differ, one of them is wrong."""
    ours, theirs = FIGURES[figure]
    recorded = _recorded("instance_types")
    type_names = load_catalog().types.keys() & recorded.keys()

    differing = {name for name in type_names if ours(load_catalog().types[name]) != theirs(recorded[name])}

    assert differing == (CARDS_DIFFER if figure == "cards" else set())


def test_moto_has_the_same_instance_types() -> None:
    """The types that moto lacks are listed above."""
    ours, theirs = set(load_catalog().types), set(_recorded("instance_types"))

    assert ours - theirs == UNKNOWN_TO_MOTO
    assert {name for name in theirs - ours if not name.startswith(WITHOUT_FACTS)} == set()


@pytest.mark.parametrize("region", load_catalog().regions)
def test_offers_agree_with_moto(region: str) -> None:
    """The simulation must reject the same types as the plan."""
    catalog = load_catalog()

    ours = {name: set(catalog.offered(name, region)) for name in catalog.offers}

    assert {name: zones for name, zones in ours.items() if zones} == _offers(region)


@pytest.mark.parametrize("region", load_catalog().regions)
def test_zones_agree_with_moto(region: str) -> None:
    """The simulation creates subnets only in zones that it has."""
    theirs = {zone.name for zone in RegionsAndZonesBackend.zones[region]}

    assert set(load_catalog().regions[region].zones) - UNLISTED_ZONES == theirs


NORTH, SOUTH = "xx-north-1", "xx-south-1"
ACCOUNT = "210987654321"


def _facts(name: str, vcpus: int = 2) -> InstanceFacts:
    return InstanceFacts(name, "x86_64", vcpus, 4096)


KNOWN = Catalog(
    regions={name: RegionFacts(name, (f"{name}a",), opt_in=False) for name in (NORTH, SOUTH)},
    types={name: _facts(name) for name in ("a9.large", "b9.large", "c9.large")},
    offers={"a9.large": {NORTH: "ab", SOUTH: "a"}, "b9.large": {NORTH: "a"}, "c9.large": {}},
    prices={"a9.large": 1.0},
)


def test_an_answer_replaces_all_offers_of_its_region() -> None:
    """Offers of other regions are kept."""
    answer = RegionAnswer({"a9.large": _facts("a9.large")}, {"a9.large": "bc", "d9.large": "a"})

    offers = refreshed(KNOWN, ACCOUNT, {NORTH: answer}, {}).offers

    assert offers == {"a9.large": {NORTH: "bc", SOUTH: "a"}, "c9.large": {}, "d9.large": {NORTH: "a"}}


def test_zone_letters_differ_by_account_only_in_older_regions() -> None:
    """A region has the letters of the account that answered last."""
    empty = RegionAnswer({}, {})
    refreshed_catalog = refreshed(
        refreshed(KNOWN, "1", {"us-west-2": empty, "us-east-1": empty}, {}), "2", {"us-east-1": empty}, {}
    )
    catalog = replace(KNOWN, accounts=refreshed_catalog.accounts)

    regions = "us-west-2", "us-east-1", "eu-west-1", "eu-north-1"
    assert [catalog.has_letters_of("2", region) for region in regions] == [False, True, False, True]


@pytest.mark.parametrize(
    ("regions", "dropped"),
    [((SOUTH,), set()), ((NORTH,), {"b9.large"}), ((NORTH, SOUTH), {"a9.large", "b9.large", "c9.large"})],
)
def test_a_type_is_dropped_if_all_its_regions_omit_it(regions: tuple[str, ...], dropped: set[str]) -> None:
    """A type without offers is dropped if all regions omit it."""
    answers = dict.fromkeys(regions, RegionAnswer({}, {}))

    assert KNOWN.types.keys() - refreshed(KNOWN, ACCOUNT, answers, {}).types.keys() == dropped


def test_changes_are_counted() -> None:
    """Offers by region, types and prices in total."""
    answer = RegionAnswer({"a9.large": _facts("a9.large", 4), "d9.large": _facts("d9.large")}, {"a9.large": "ab"})

    after = refreshed(KNOWN, ACCOUNT, {NORTH: answer}, {"a9.large": 2.0, "d9.large": 1.0})

    assert tuple(changes(KNOWN, after)) == (
        Change("instance types", 3, 1, 1, 1),
        Change("prices", 1, 1, 1, 0),
        Change(f"offers in {NORTH}", 2, 0, 0, 1),
        Change(f"offers in {SOUTH}", 1, 0, 0, 0),
    )


@pytest.mark.parametrize(("dropped", "is_large"), [(0, False), (10, False), (11, True), (100, True)])
def test_a_change_that_drops_more_than_a_tenth_is_large(dropped: int, *, is_large: bool) -> None:
    """The answer of AWS was probably incomplete."""
    assert Change("prices", 100, 500, 500, dropped).is_large is is_large


def test_an_incomplete_answer_is_an_error() -> None:
    """The fix is to try again, or to add --force."""
    with pytest.raises(ViolationError, match=f"20 of 100 offers in {NORTH}") as error:
        check_whole((Change("prices", 100, 0, 0, 0), Change(f"offers in {NORTH}", 100, 0, 0, 20)))

    assert "--force" in error.value.fix


SHIPPED = read_keys(read_data_file("keys").rows)


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_keys_are_those_of_the_table(name: str) -> None:
    """Gpg reads the fingerprint and the end that the table has."""
    need_program("gpg")
    text, facts = key_text(name), SHIPPED[name]

    assert read_public_key(text) == PublicKey(frozenset({facts.fingerprint}), facts.ends)
    assert sha256(text.encode()).hexdigest() == facts.checksum


def test_a_renewed_key_replaces_the_shipped_copy() -> None:
    """It has the same fingerprint and ends later; an older copy is not taken. The table keeps the new facts."""
    facts = SHIPPED["kubernetes"]
    assert facts.ends
    same = frozenset({facts.fingerprint})
    later, earlier = (PublicKey(same, facts.ends + timedelta(days=days)) for days in (730, -1))

    renewed = facts.renewed("new", later)

    assert (renewed.ends, renewed.checksum) == (later.ends, sha256(b"new").hexdigest())
    assert facts.renewed("old", earlier) == facts
    assert read_keys(write_keys({"kubernetes": renewed})) == {"kubernetes": replace(renewed, text="")}


@pytest.mark.parametrize("others", [set(), {"0" * 40}, {SHIPPED["docker"].fingerprint, "0" * 40}], ids=len)
def test_another_key_is_refused(others: set[str]) -> None:
    """Also next to the known one: apt would trust both."""
    with pytest.raises(ViolationError, match="expected 9DC8"):
        SHIPPED["docker"].renewed("text", PublicKey(frozenset(others), None))


@pytest.mark.parametrize(("days", "words"), [(59, "ends on"), (-1, "ended on"), (61, "")])
def test_a_key_that_ends_soon_is_a_warning(days: int, words: str, tmp_path: Path, catalog: Catalog) -> None:
    """60 days before, if the fleet has a cluster; the fix says how to renew it."""
    path = tmp_path / "fleet.yaml"
    path.write_text((EXAMPLES / "lab.yaml").read_text())
    key = replace(SHIPPED["kubernetes"], ends=today() + timedelta(days=days))

    faults = [fault for fault in examine(path, replace(catalog, keys={"kubernetes": key})) if fault.code == "W644"]

    assert [words in fault.message for fault in faults] == ([True] if words else [])


# What ends within 60 days, and why nobody can change it yet.
KNOWN_ENDS = {
    ("key of kubernetes", date(2026, 12, 29)): "pkgs.k8s.io had not published a longer one where bedplate was built",
}


@pytest.mark.nightly
def test_nothing_that_is_shipped_ends_within_60_days(catalog: Catalog) -> None:
    """Keys, the driver branch of the newest software set, and Kubernetes of the examples, at today's real date.

    An entry of the list whose date has changed must be deleted.
    """
    branch = catalog.drivers[catalog.software_set(None).driver]
    ends = {f"key of {name}": key.ends for name, key in SHIPPED.items()}
    ends |= {f"driver branch {branch.branch}": branch.ends, "Kubernetes 1.36": catalog.releases["1.36"].ends}
    limit = datetime.now(UTC).date() + NOTICE

    assert {(name, end) for name, end in ends.items() if end and end < limit} == {*KNOWN_ENDS}
