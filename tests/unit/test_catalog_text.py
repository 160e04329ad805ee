"""The text of the catalogue: it reads back, and the files that a refresh renews are as their writer leaves them."""

import pytest

from bedplate.catalog.facts import AcceleratorFacts, GpuFacts, InstanceFacts
from bedplate.catalog.instances import read_instances, write_instances
from bedplate.catalog.offers import read_offers, write_offers
from bedplate.catalog.prices import read_prices, write_prices
from bedplate.catalog.sheet import read_sheet, write_sheet
from bedplate.catalog.shipped import FOLDER, shipped

REWRITTEN = {
    "instances": lambda rows: write_instances(read_instances(rows).values()),
    "offers": lambda rows: write_offers(read_offers(rows)),
    "prices": lambda rows: write_prices(read_prices(rows)),
}

TYPES = (
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
    assert tuple(read_instances(write_instances(TYPES)).values()) == TYPES


def test_equal_cards_are_told_as_one_run() -> None:
    """32 cards alike are four characters, not a line of their own."""
    row = write_instances(TYPES)[2]

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
