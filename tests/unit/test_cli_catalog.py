"""`bedplate catalog refresh` and `bedplate image record`, against prepared answers of AWS."""

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bedplate.catalog import load_catalog
from bedplate.catalog.catalog import FOLDER, key_text
from bedplate.catalog.keys import PublicKey
from bedplate.cli import run
from bedplate.load import load_fleet
from bedplate.lock import read_lock, record_plan
from bedplate.plan.planner import image_parameter, image_places
from tests.testlab.fakes.aws import ACCOUNT, StubbedSession, asked_of_the_price_list, product, stubbed_account
from tests.testlab.rehearsal.programs import EXAMPLES, plan_of

SMALL = "ap-southeast-5"
KEY = "-----BEGIN PGP PUBLIC KEY BLOCK-----"


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a copy of the catalog's files, which a refresh writes instead of the project's own."""
    copy = Path(shutil.copytree(FOLDER, tmp_path / "data"))
    monkeypatch.setattr("bedplate.catalog.catalog.FOLDER", copy)
    return copy


def _entry(name: str) -> dict[str, Any]:
    facts = load_catalog().types[name]
    network = {"NetworkCards": [{"MaximumNetworkInterfaces": interfaces} for interfaces in facts.interfaces_per_card]}
    return {
        "InstanceType": name,
        "ProcessorInfo": {"SupportedArchitectures": [facts.arch]},
        "VCpuInfo": {"DefaultVCpus": facts.vcpus + 1},
        "MemoryInfo": {"SizeInMiB": facts.memory_mib},
        "NetworkInfo": network,
    }


def _offer(account: StubbedSession, left_out: int = 0) -> None:
    """Offer the known types of the small region, without the last ones and with other vCPUs."""
    catalog = load_catalog()
    type_names = [name for name in catalog.offers if SMALL in catalog.offers[name]]
    offered_names = type_names[: len(type_names) - left_out]
    offers = [
        {"InstanceType": name, "Location": zone} for name in offered_names for zone in catalog.offered(name, SMALL)
    ]
    entries = {"InstanceTypes": [_entry(name) for name in offered_names if name in catalog.types]}
    account.answers("ec2", SMALL, "describe_instance_types", entries)
    listed, parameters = {"InstanceTypeOfferings": offers}, {"LocationType": "availability-zone"}
    account.answers("ec2", SMALL, "describe_instance_type_offerings", listed, **parameters)


def _price(account: StubbedSession) -> None:
    listed = {"PriceList": [product(name, str(price)) for name, price in load_catalog().prices.items()]}
    parameters = asked_of_the_price_list("us-east-1")
    account.answers("pricing", "us-east-1", "get_products", listed, **parameters)


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[StubbedSession]:
    """Return an AWS whose answers a test prepares."""
    texts = {key.address: key_text(name) for name, key in load_catalog().keys.items()}

    def download(url: str) -> str:
        return texts.get(url) or (KEY if url.endswith(".pub") else "no installer")

    keys = {key_text(name): PublicKey(frozenset({key.fingerprint}), None) for name, key in load_catalog().keys.items()}
    monkeypatch.setattr("bedplate.operate.account.download", download)
    # gpg reads the real keys in test_catalog.
    monkeypatch.setattr("bedplate.operate.account.read_public_key", keys.__getitem__)
    with stubbed_account(monkeypatch) as session:
        session.belongs_to(ACCOUNT, "us-east-1")
        yield session


def _contents(data: Path) -> dict[str, str]:
    return {file.name: file.read_text() for file in data.iterdir()}


def test_a_refresh_rewrites_what_aws_tells_anew(
    aws: StubbedSession, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The output counts the changes; files of other facts do not change."""
    before = _contents(data)
    _offer(aws)
    _price(aws)

    assert run(["catalog", "refresh", "--region", SMALL]) == 0

    after = _contents(data)
    changed = {name for name in after if before.get(name) != after[name]}
    assert changed == {"instances.txt", "nvidia.asc", "offers.txt", "prices.txt", "software.txt"}
    assert after["offers.txt"].startswith("# date: 2026-11-21\n")
    assert f"\n# accounts: {SMALL}={ACCOUNT}\n" in after["offers.txt"]
    assert f"asked in {SMALL}; the others as of" in after["instances.txt"]
    assert after["nvidia.asc"] == KEY
    output = capsys.readouterr()
    assert "instance types" in output.out
    assert "not verified: efa-sha256 of software set 2026-10, efa-sha256 of software set 2026-11" in output.err


@pytest.mark.usefixtures("data")
def test_a_refresh_lists_recorded_zones_that_do_not_offer_the_type(
    aws: StubbedSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """They were chosen from other offers, and the lock keeps them."""
    text = (EXAMPLES / "minimal.yaml").read_text().replace("us-west-2", SMALL).replace(f"{SMALL}b", f"{SMALL}c")
    plane = "kubernetes: {version: '1.36', control_plane: {count: 1, type: g6.xlarge}}"
    (tmp_path / "fleet.yaml").write_text(f"{text}  E204: it is enabled\n{plane}\n")
    monkeypatch.chdir(tmp_path)
    catalog = load_catalog()
    other = replace(catalog, offers={**catalog.offers, "g6.xlarge": {SMALL: "c"}})
    record_plan(Path("fleet.lock"), load_fleet(Path("fleet.yaml"), catalog).fleet, other)
    _offer(aws)
    _price(aws)

    assert run(["catalog", "refresh", "--region", SMALL]) == 0

    assert f"g6.xlarge is not offered in the zones of control-1.{SMALL} ({SMALL}c)" in capsys.readouterr().out


@pytest.mark.parametrize(("more", "status"), [([], 3), (["--force"], 0)])
def test_an_answer_cut_short_does_not_empty_the_catalogue(
    more: list[str], status: int, aws: StubbedSession, data: Path
) -> None:
    """A refresh that drops many facts is refused, unless --force is given."""
    before = _contents(data)
    _offer(aws, left_out=100)
    _price(aws)

    assert run(["catalog", "refresh", "--region", SMALL, *more]) == status

    assert (_contents(data) == before) is bool(status)


def test_nothing_is_written_when_a_region_fails(
    aws: StubbedSession, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """All facts of a catalog have the same date."""
    before = _contents(data)
    _offer(aws)
    aws.refuses("ec2", "eu-north-1", "describe_instance_types", "InternalError", 500)

    assert run(["catalog", "refresh", "--region", SMALL, "--region", "eu-north-1"]) == 6

    assert _contents(data) == before
    assert "nothing was written: eu-north-1: ec2: internal error of AWS" in capsys.readouterr().err


def test_regions_that_are_not_enabled_are_listed(
    aws: StubbedSession, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Their facts do not change."""
    aws.answers("ec2", "us-east-1", "describe_regions", {"Regions": [{"RegionName": SMALL}]})
    _offer(aws)
    _price(aws)

    assert run(["catalog", "refresh"]) == 0

    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("not updated: ")
    assert SMALL not in last


def test_an_unknown_region_is_refused_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    """Status 2, before any call to AWS."""
    assert run(["catalog", "refresh", "--region", "us-esat-1"]) == 2

    assert "write us-east-1" in capsys.readouterr().err


def test_without_credentials_aws_cannot_be_asked(capsys: pytest.CaptureFixture[str]) -> None:
    """The exit status is 4, and the message has the reason."""
    assert run(["catalog", "refresh"]) == 4

    assert "no AWS credentials found" in capsys.readouterr().err


HOME = "us-west-2"
OLD, NEW = "ami-0000000000000000a", "ami-0000000000000000b"


def _publish(account: StubbedSession, places: tuple[str, ...], image: str) -> None:
    for place in places:
        region, _, arch = place.partition("/")
        name = image_parameter(arch)
        account.answers("ssm", region, "get_parameter", {"Parameter": {"Name": name, "Value": image}}, Name=name)


def _images(file: Path) -> dict[str, str]:
    return dict(read_lock(file.with_name("fleet.lock"), "lab").images)


def test_images_are_recorded_once_for_every_place(
    account: StubbedSession, lab: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A second run does not ask AWS: the fleet keeps its recorded images."""
    places = image_places(plan_of(lab), load_catalog())
    _publish(account, places, OLD)

    assert run(["image", "record", str(lab)]) == 0
    assert run(["image", "record", str(lab)]) == 0

    assert _images(lab) == dict.fromkeys(places, OLD)
    assert f"recorded in fleet.lock: {len(places)} images" in capsys.readouterr().out


def test_renewing_takes_the_newest_in_place_of_the_recorded(
    account: StubbedSession, lab: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The previous image is shown beside the new one; blocks do not change."""
    assert run(["plan", str(lab), "--write"]) == 0
    blocks = read_lock(lab.with_name("fleet.lock"), "lab").blocks
    places = image_places(plan_of(lab), load_catalog())
    _publish(account, places, OLD)
    assert run(["image", "record", str(lab)]) == 0
    account.belongs_to(ACCOUNT, HOME)
    _publish(account, places, NEW)

    assert run(["image", "record", str(lab), "--renew"]) == 0

    assert _images(lab) == dict.fromkeys(places, NEW)
    assert read_lock(lab.with_name("fleet.lock"), "lab").blocks == blocks
    assert f"was {OLD}" in capsys.readouterr().out


@pytest.mark.parametrize(("code", "status"), [("ThrottlingException", 6), ("AccessDeniedException", 4)])
def test_a_region_without_an_image_leaves_the_lock_as_it_was(
    code: str, status: int, account: StubbedSession, lab: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Images are recorded for all regions or for none."""
    run(["plan", str(lab), "--write"])
    before = lab.with_name("fleet.lock").read_bytes()
    places = image_places(plan_of(lab), load_catalog())
    _publish(account, tuple(place for place in places if not place.startswith("eu-north-1")), OLD)
    account.refuses("ssm", "eu-north-1", "get_parameter", code)

    assert run(["image", "record", str(lab)]) == status

    assert lab.with_name("fleet.lock").read_bytes() == before
    assert "nothing was recorded: eu-north-1: " in capsys.readouterr().err


def test_a_parameter_that_holds_no_image_is_not_recorded(account: StubbedSession, lab: Path) -> None:
    """The lock only holds valid image ids."""
    places = image_places(plan_of(lab), load_catalog())
    _publish(account, places, "ubuntu-24.04")

    assert run(["image", "record", str(lab)]) == 6

    assert not lab.with_name("fleet.lock").exists()


def test_a_plan_tells_of_images_that_are_not_recorded(
    account: StubbedSession, lab: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line, if there is a lock; none after the images are recorded."""
    run(["plan", str(lab), "--write"])
    capsys.readouterr()
    run(["plan", str(lab)])
    before = capsys.readouterr().out
    _publish(account, image_places(plan_of(lab), load_catalog()), OLD)
    run(["image", "record", str(lab)])
    capsys.readouterr()

    run(["plan", str(lab)])

    assert before.count("no recorded image for ") == 1
    assert "no image recorded" not in capsys.readouterr().out


def test_images_are_not_recorded_from_another_account(lab: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The images of another account can differ: only its id is asked for."""
    with stubbed_account(monkeypatch) as session:
        session.belongs_to("444455556666", HOME)

        assert run(["image", "record", str(lab)]) == 2


def test_without_credentials_no_image_can_be_recorded(lab: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The exit status is 4, and the message has the reason."""
    assert run(["image", "record", str(lab)]) == 4

    assert "no AWS credentials found" in capsys.readouterr().err
