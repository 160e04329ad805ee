"""What an operator of the lab's file sees of laptops' certificates; never what a gateway has of them."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from bedplate.cli import run
from bedplate.plan import FleetPlan
from tests.testlab.fakes.gateway import shell_to, site_gateway_at
from tests.testlab.network.netlab import capture
from tests.testlab.network.regions import RegionsLab, regions_lab
from vpn.sites.gateway import PlaceProofs

HOSTS = {"us-west-2": "laptops.us-west-2", "cellar": "gate.cellar"}


def listed(lab: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    """Return the note of each certificate."""
    capsys.readouterr()
    run(["vpn", "list", str(lab), "--json"])
    return {each["name"]: each["note"] for each in json.loads(capsys.readouterr().out)["certificates"]}


def begun_file(folder: Path, text: str) -> Path:
    """Write a fleet's file, record its addresses and begin its authority."""
    file = folder / "fleet.yaml"
    file.write_text(text, encoding="utf-8")
    assert run(["plan", str(file), "--write"]) == 0
    assert run(["vpn", "init", str(file)]) == 0
    return file


def gateways_at(folder: Path, names: Mapping[str, str], patch: pytest.MonkeyPatch) -> dict[str, Path]:
    """Make a gateway of each machine, by its place, with its roles and no tunnel yet; the operator's ssh goes there."""
    shell_to(folder / "hosts", patch)
    return {place: site_gateway_at(folder / "hosts" / name) for place, name in names.items()}


def lose_credentials(patch: pytest.MonkeyPatch) -> None:
    """Remove the credentials that moto sets."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        patch.delenv(name, raising=False)
    patch.setenv("AWS_EC2_METADATA_DISABLED", "true")


def secrets_on(gateway: Path) -> dict[str, str]:
    """Return the keys that lie on a gateway, by their connection."""
    texts = (each.read_text() for each in gateway.glob("etc/bedplate/ipsec/*/swanctl.conf"))
    return {name: key for text in texts for name, key in re.findall(r"ike-(\S+) {.*?secret = 0x(\w+)", text, re.DOTALL)}


def all_secrets(gateways: Iterable[Path]) -> set[str]:
    """Return every key that lies on some gateways."""
    return {key for gateway in gateways for key in secrets_on(gateway).values()}


INSIDE = "net 10.0.0.0/8"
# From the table of promises in docs/vpn-sites.md.
MOST_SECONDS = 10


@contextmanager
def standing_regions(plan: FleetPlan, proofs: PlaceProofs | None = None) -> Iterator[RegionsLab]:
    """Give both regions of a plan once a node of one answers a node of the other; by keys without other proofs."""
    with regions_lab(plan, proofs) as made:
        made.start()
        made.wait()
        yield made


def seen_of_pings(stands: RegionsLab) -> Path:
    """Have a node of each region answer one of the other, and return what the internet saw of it."""
    with capture(stands.internet, "us") as wire:
        assert stands.west.node.pings(stands.north.address)
        assert stands.north.node.pings(stands.west.address)
    return wire
