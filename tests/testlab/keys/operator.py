"""An operator for tests: commands of the CLI, gateways behind a fake ssh, and their keys."""

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
    """Return the note of each certificate in `bedplate vpn list`."""
    capsys.readouterr()
    run(["vpn", "list", str(lab), "--json"])
    return {row["name"]: row["note"] for row in json.loads(capsys.readouterr().out)["certificates"]}


def begun_file(folder: Path, text: str) -> Path:
    """Write a fleet file, record its addresses and create its authority."""
    file = folder / "fleet.yaml"
    file.write_text(text, encoding="utf-8")
    assert run(["plan", str(file), "--write"]) == 0
    assert run(["vpn", "init", str(file)]) == 0
    return file


def gateways_at(folder: Path, names: Mapping[str, str], patch: pytest.MonkeyPatch) -> dict[str, Path]:
    """Create a gateway for each machine by place, with its roles and without tunnels, behind the operator's ssh."""
    shell_to(folder / "hosts", patch)
    return {place: site_gateway_at(folder / "hosts" / name) for place, name in names.items()}


def lose_credentials(patch: pytest.MonkeyPatch) -> None:
    """Remove the credentials that moto sets."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        patch.delenv(name, raising=False)
    patch.setenv("AWS_EC2_METADATA_DISABLED", "true")


def secrets_on(gateway: Path) -> dict[str, str]:
    """Return the shared keys on a gateway by connection."""
    texts = (file.read_text() for file in gateway.glob("etc/bedplate/ipsec/*/swanctl.conf"))
    return {name: key for text in texts for name, key in re.findall(r"ike-(\S+) {.*?secret = 0x(\w+)", text, re.DOTALL)}


def all_secrets(gateways: Iterable[Path]) -> set[str]:
    """Return all shared keys on these gateways."""
    return {key for gateway in gateways for key in secrets_on(gateway).values()}


INSIDE = "net 10.0.0.0/8"
# Limit in docs/vpn-sites.md.
MOST_SECONDS = 10


@contextmanager
def running_regions(plan: FleetPlan, proofs: PlaceProofs | None = None) -> Iterator[RegionsLab]:
    """Yield both regions of a plan after their nodes reach each other; without other proofs with shared keys."""
    with regions_lab(plan, proofs) as lab:
        lab.start()
        lab.wait()
        yield lab


def seen_of_pings(running_lab: RegionsLab) -> Path:
    """Ping between nodes of both regions, and return a capture of the internet."""
    with capture(running_lab.internet, "us") as wire:
        assert running_lab.west.node.pings(running_lab.north.address)
        assert running_lab.north.node.pings(running_lab.west.address)
    return wire
