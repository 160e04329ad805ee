"""Reports of other projects' users, as fleets: blocks of offices, homes, containers and regions that meet."""

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from bedplate.catalog import load_catalog
from bedplate.load import examine

BASE = (Path(__file__).parents[1] / "data" / "fleets" / "base.yaml").read_text(encoding="utf-8")
FaultsOf = Callable[[Mapping[str, str]], set[tuple[str, str]]]


@pytest.fixture
def faults_of(tmp_path: Path) -> FaultsOf:
    """Return a function that gives code and key of the faults of the base fleet after an edit."""

    def faults(edit: Mapping[str, str]) -> set[tuple[str, str]]:
        text = BASE
        for old, new in edit.items():
            assert old in text
            text = text.replace(old, new)
        file = tmp_path / "fleet.yaml"
        file.write_text(text, encoding="utf-8")
        return {(fault.code, fault.key) for fault in examine(file, load_catalog()) if fault.code != "W644"}

    return faults


def _lan(block: str) -> dict[str, str]:
    return {"192.168.60.0/24": block, "192.168.60.1}": block.partition("/")[0].rpartition(".")[0] + ".1}"}


@pytest.mark.parametrize(
    ("block", "codes", "source"),
    [
        ("192.168.1.0/24", {"W239"}, "pivpn/pivpn#1475, angristan/openvpn-install#630"),
        ("172.28.0.0/16", {"W238"}, "jakeswenson/BitBetter#79, moby/moby#37823"),
        ("172.29.0.0/16", {"W238"}, "docker/for-mac#2820"),
        # Docker takes it only if all others are in use.
        ("192.168.112.0/20", set(), "docker/for-mac#2820"),
        ("172.17.3.0/24", {"E224"}, "docker-archive/for-aws#117"),
        ("10.0.0.0/8", {"E226", "W239"}, "strongswan/strongswan#1150"),
        ("10.0.5.0/24", set(), "hwdsl2/docker-ipsec-vpn-server#121"),
        ("192.168.65.0/24", set(), "moby/vpnkit#427: on a laptop, where Docker Desktop can be told otherwise"),
        ("100.64.0.0/24", {"E222"}, "tailscale/tailscale#1381"),
    ],
)
def test_a_reported_lan_gets_its_finding(block: str, codes: set[str], source: str, faults_of: FaultsOf) -> None:
    """Blocks in use elsewhere are warnings, overlaps are errors, both at the site; other blocks of offices pass."""
    assert faults_of(_lan(block)) == {(code, "sites.attic.lan") for code in codes}, source


@pytest.mark.parametrize(
    ("edit", "faults", "source"),
    [
        (
            {"[us-east-1a, us-east-1b]": "[us-east-1a, us-east-1-bos-1a]"},
            {("E106", "regions.us-east-1.zones.1")},
            "aws-ia/terraform-aws-eks-blueprints#1095",
        ),
        (
            {"us-west-2: {home: true,": "us-west-2: {home: true, block: 172.16.0.0/16,"},
            set(),
            "tiagots86/linuxtips-curso-containers-aws-multiregion-vpc, deployment/environment/*/terraform.tfvars",
        ),
        (
            {"us-west-2: {home: true,": "us-west-2: {home: true, block: 10.9.0.0/16,"},
            {("E226", "regions.us-east-1.block")},
            "the same with equal blocks",
        ),
        (
            {"block: 10.9.0.0/16": "block: 172.17.0.0/16"},
            {("E224", "regions.us-east-1.block")},
            "docker-archive/for-aws#117",
        ),
        (
            {"block: 10.9.0.0/16": "block: 172.31.0.0/16"},
            {("W223", "regions.us-east-1.block"), ("W238", "regions.us-east-1.block")},
            "docker/for-mac#2820",
        ),
    ],
    ids=["a local zone", "two address spaces", "equal blocks", "the bridge of Docker", "the default VPC"],
)
def test_a_reported_region_gets_its_finding(
    edit: Mapping[str, str], faults: set[tuple[str, str]], source: str, faults_of: FaultsOf
) -> None:
    """Before anything is created, at the key of the region."""
    assert faults_of(edit) == faults, source
