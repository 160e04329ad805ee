"""Names that certificates of gateways bear, of sites that are joined to each other."""

from pathlib import Path

import pytest

from bedplate.catalog import load_catalog
from bedplate.load import examine
from tests.conftest import DATA
from vpn.subject import Subject, Use

BASE = (DATA / "fleets" / "base.yaml").read_text()
# Its gateways of laptops are left out: those of sites have names of their own.
JOINED = BASE.replace("  laptops: {gateways: [{region: us-west-2}, {site: cellar}], pool: /22}\n", "  {tunnels}\n")
LONGEST = "a" * 40 + ".internal"


def _faults(folder: Path, domain: str, auth: str) -> set[tuple[str, str]]:
    file = folder / "fleet.yaml"
    text = JOINED.replace("{tunnels}", f"tunnels: {{auth: {auth}}}").replace(
        "asn: 65010}", "asn: 65010, joins: [attic]}"
    )
    file.write_text(text.replace("lab.internal", domain))
    return {(each.code, each.key) for each in examine(file, load_catalog())}


@pytest.mark.parametrize(
    ("domain", "auth", "told"),
    [
        (LONGEST, "certificates", set()),
        (f"a{LONGEST}", "certificates", {("E618", "sites.cellar.gateway")}),
        (f"aa{LONGEST}", "certificates", {("E618", "sites.cellar.gateway"), ("E618", "sites.attic.gateway")}),
        (f"aa{LONGEST}", "psk", set()),
    ],
    ids=["fits", "one-too-long", "both-too-long", "keys"],
)
def test_joined_sites_have_names_that_fit_a_certificate(
    domain: str, auth: str, told: set[tuple[str, str]], tmp_path: Path
) -> None:
    """Both ends, whichever says the joint; nobody has a certificate where they have keys."""
    assert _faults(tmp_path, domain, auth) == told


def test_the_check_and_the_certificate_agree() -> None:
    """What the check lets through is a subject: 64 characters, the longest there is."""
    assert len(Subject(f"tunnels.cellar.{LONGEST}", Use.PEER).name) == 64
