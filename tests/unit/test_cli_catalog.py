"""`bedplate catalog`, driven as an operator drives it, against answers of AWS that are known."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bedplate.catalog import load_catalog
from bedplate.catalog.shipped import FOLDER
from bedplate.cli import run
from tests.support.priced import asked_of_the_price_list, product
from tests.support.stubbed import StubbedSession, stubbed_account

SMALL = "ap-southeast-5"


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a copy of the catalogue's files, which a refresh writes instead of the project's own."""
    copy = Path(shutil.copytree(FOLDER, tmp_path / "data"))
    monkeypatch.setattr("bedplate.catalog.shipped.FOLDER", copy)
    return copy


def _entry(name: str) -> dict[str, Any]:
    facts = load_catalog().types[name]
    network = {"NetworkCards": [{"MaximumNetworkInterfaces": each} for each in facts.interfaces_per_card]}
    return {
        "InstanceType": name,
        "ProcessorInfo": {"SupportedArchitectures": [facts.arch]},
        "VCpuInfo": {"DefaultVCpus": facts.vcpus + 1},
        "MemoryInfo": {"SizeInMiB": facts.memory_mib},
        "NetworkInfo": network,
    }


def _offer(account: StubbedSession, left_out: int = 0) -> None:
    """Tell what the catalogue knows of the small region, but for the last types, and with other vCPUs."""
    catalog = load_catalog()
    known = [name for name in catalog.offers if SMALL in catalog.offers[name]]
    told = known[: len(known) - left_out]
    offers = [{"InstanceType": name, "Location": zone} for name in told for zone in catalog.offered(name, SMALL)]
    entries = {"InstanceTypes": [_entry(name) for name in told if name in catalog.types]}
    account.answers("ec2", SMALL, "describe_instance_types", entries)
    listed, asked = {"InstanceTypeOfferings": offers}, {"LocationType": "availability-zone"}
    account.answers("ec2", SMALL, "describe_instance_type_offerings", listed, **asked)


def _price(account: StubbedSession) -> None:
    listed = {"PriceList": [product(name, str(price)) for name, price in load_catalog().prices.items()]}
    asked = asked_of_the_price_list("us-east-1")
    account.answers("pricing", "us-east-1", "get_products", listed, **asked)


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[StubbedSession]:
    """Give an AWS whose answers a test prepares; nobody asks it whose account it is."""
    with stubbed_account(monkeypatch) as session:
        yield session


def _contents(data: Path) -> dict[str, str]:
    return {file.name: file.read_text() for file in data.iterdir()}


def test_a_refresh_rewrites_what_aws_tells_anew(
    aws: StubbedSession, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Counts say what has changed; sheets that are not asked for are not touched."""
    before = _contents(data)
    _offer(aws)
    _price(aws)

    assert run(["catalog", "refresh", "--region", SMALL]) == 0

    after = _contents(data)
    assert {name for name in before if before[name] != after[name]} == {"instances.txt", "offers.txt", "prices.txt"}
    assert after["offers.txt"].startswith("# date: 2026-11-21\n")
    assert f"asked in {SMALL}; the others as of" in after["instances.txt"]
    assert "instance types" in capsys.readouterr().out


@pytest.mark.parametrize(("more", "status"), [([], 3), (["--force"], 0)])
def test_an_answer_cut_short_does_not_empty_the_catalogue(
    more: list[str], status: int, aws: StubbedSession, data: Path
) -> None:
    """Unless whoever knows better insists."""
    before = _contents(data)
    _offer(aws, left_out=100)
    _price(aws)

    assert run(["catalog", "refresh", "--region", SMALL, *more]) == status

    assert (_contents(data) == before) is bool(status)


def test_nothing_is_written_when_a_region_fails(
    aws: StubbedSession, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A catalogue of two days is worse than an old one."""
    before = _contents(data)
    _offer(aws)
    aws.refuses("ec2", "eu-north-1", "describe_instance_types", "InternalError", 500)

    assert run(["catalog", "refresh", "--region", SMALL, "--region", "eu-north-1"]) == 6

    assert _contents(data) == before
    assert "nothing was written: eu-north-1: ec2 fails inside AWS" in capsys.readouterr().err


def test_regions_that_are_not_enabled_are_told(
    aws: StubbedSession, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Their facts stay as they were."""
    aws.answers("ec2", "us-east-1", "describe_regions", {"Regions": [{"RegionName": SMALL}]})
    _offer(aws)
    _price(aws)

    assert run(["catalog", "refresh"]) == 0

    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("not asked, for the account has not enabled them: ")
    assert SMALL not in last


def test_a_region_that_aws_has_not_is_told_with_its_neighbour(capsys: pytest.CaptureFixture[str]) -> None:
    """Before anybody is asked."""
    assert run(["catalog", "refresh", "--region", "us-esat-1"]) == 2

    assert "the nearest is us-east-1" in capsys.readouterr().err


def test_without_credentials_aws_cannot_be_asked(capsys: pytest.CaptureFixture[str]) -> None:
    """The machine lacks something, and it is said what."""
    assert run(["catalog", "refresh"]) == 4

    assert "there are no AWS credentials here" in capsys.readouterr().err
