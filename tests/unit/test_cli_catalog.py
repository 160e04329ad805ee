"""`bedplate catalog refresh` and `bedplate image record`, against prepared answers of AWS."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from bedplate.catalog import load_catalog
from bedplate.catalog.catalog import FOLDER, key_text
from bedplate.catalog.folder import read_facts
from bedplate.catalog.keys import PublicKey
from bedplate.cli import run
from bedplate.load import load_fleet
from bedplate.load.catalog import fleet_catalog
from bedplate.lock import read_lock, record_plan
from bedplate.plan.planner import image_parameter, image_places
from tests.testlab.fakes.aws import ACCOUNT, StubbedSession, asked_of_the_price_list, product, stubbed_account
from tests.testlab.rehearsal.programs import EXAMPLES, plan_of

SMALL = "ap-southeast-5"
KEY = "-----BEGIN PGP PUBLIC KEY BLOCK-----\n"


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a fleet file in the small region, in its folder, where the command runs."""
    file = tmp_path / "fleet.yaml"
    text = (EXAMPLES / "minimal.yaml").read_text().replace("us-west-2", SMALL).replace(f"{SMALL}b", f"{SMALL}c")
    file.write_text(f"{text}  E204: it is enabled\n")
    monkeypatch.chdir(tmp_path)
    return file


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
        session.belongs_to(ACCOUNT, SMALL)
        yield session


def _clone() -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in FOLDER.iterdir()}


def test_a_refresh_writes_the_fleet_folder_and_nothing_else(
    aws: StubbedSession, fleet: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The facts of an account are in `fleet.catalog`: neither the clone nor the bundle of machines depends on them."""
    before = _clone()
    _offer(aws)
    _price(aws)

    assert run(["catalog", "refresh"]) == 0

    assert _clone() == before
    assert {file.name for file in fleet.parent.iterdir()} == {"fleet.catalog", "fleet.yaml"}
    facts = read_facts(fleet.with_name("fleet.catalog").read_text())
    assert (facts.account, dict(facts.dates)) == (ACCOUNT, {SMALL: date(2026, 11, 21)})
    assert facts.nvidia_key == KEY
    catalog = fleet_catalog(fleet)
    assert catalog.types["m7i.xlarge"].vcpus == load_catalog().types["m7i.xlarge"].vcpus + 1
    assert catalog.has_letters_of(ACCOUNT, SMALL)
    assert catalog.offers["m7i.xlarge"].items() >= {("us-west-2", load_catalog().offers["m7i.xlarge"]["us-west-2"])}
    output = capsys.readouterr()
    assert "instance types" in output.out
    assert "recorded in fleet.catalog: commit it" in output.out
    assert "not verified: efa-sha256 of software set 2026-10, efa-sha256 of software set 2026-11" in output.err


def test_a_refresh_says_what_it_asks_before_it_asks(
    monkeypatch: pytest.MonkeyPatch, fleet: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One region is asked first: without an answer the command ends after one call, and names one region."""
    with stubbed_account(monkeypatch) as session:
        session.refuses("sts", SMALL, "get_caller_identity", "InternalError", 500)

        assert run(["catalog", "refresh"]) == 6

    error = capsys.readouterr().err
    assert error.startswith(f"asks AWS in {SMALL} for the account\nerror: sts: internal error of AWS")
    assert not fleet.with_name("fleet.catalog").exists()


def test_a_refresh_with_credentials_of_another_account_is_refused(
    monkeypatch: pytest.MonkeyPatch, fleet: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its facts would be wrong for the fleet."""
    with stubbed_account(monkeypatch) as session:
        session.belongs_to("444455556666", SMALL)

        assert run(["catalog", "refresh"]) == 2

    assert "the AWS credentials belong to account 444455556666" in capsys.readouterr().err
    assert not fleet.with_name("fleet.catalog").exists()


def test_a_refresh_lists_recorded_zones_that_do_not_offer_the_type(
    aws: StubbedSession, fleet: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """They were chosen from other offers, and the lock keeps them."""
    plane = "kubernetes: {version: '1.36', control_plane: {count: 1, type: g6.xlarge}}"
    fleet.write_text(f"{fleet.read_text()}{plane}\n")
    catalog = load_catalog()
    other = replace(catalog, offers={**catalog.offers, "g6.xlarge": {SMALL: "c"}})
    record_plan(Path("fleet.lock"), load_fleet(Path("fleet.yaml"), catalog).fleet, other)
    _offer(aws)
    _price(aws)

    assert run(["catalog", "refresh"]) == 0

    assert f"g6.xlarge is not offered in the zones of control-1.{SMALL} ({SMALL}c)" in capsys.readouterr().out


@pytest.mark.parametrize(("more", "status"), [([], 3), (["--force"], 0)])
def test_an_answer_cut_short_does_not_empty_the_catalogue(
    more: list[str], status: int, aws: StubbedSession, fleet: Path
) -> None:
    """A refresh that drops many facts is refused, unless --force is given."""
    _offer(aws, left_out=100)
    _price(aws)

    assert run(["catalog", "refresh", *more]) == status

    assert fleet.with_name("fleet.catalog").exists() is not bool(status)


def test_nothing_is_written_when_a_region_fails(
    aws: StubbedSession, fleet: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The facts of a fleet are of all its regions."""
    _offer(aws)
    aws.refuses("ec2", "eu-north-1", "describe_instance_types", "InternalError", 500)

    assert run(["catalog", "refresh", "--region", SMALL, "--region", "eu-north-1"]) == 6

    assert not fleet.with_name("fleet.catalog").exists()
    assert "nothing was written: eu-north-1: ec2: internal error of AWS" in capsys.readouterr().err


@pytest.mark.usefixtures("fleet")
def test_an_unknown_region_is_refused_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    """Status 2, before any call to AWS."""
    assert run(["catalog", "refresh", "--region", "us-esat-1"]) == 2

    assert "write us-east-1" in capsys.readouterr().err


@pytest.mark.usefixtures("fleet")
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
