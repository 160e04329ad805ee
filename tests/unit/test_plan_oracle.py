"""The oracle that judges plans finds what is planted, so that its silence means something."""

import pytest

from tests.support.oracle import faults

GOOD = {
    "region/us-west-2": "10.64.0.0/16",
    "region/us-west-2/zone/us-west-2a/edge": "10.64.0.0/24",
    "region/us-west-2/zone/us-west-2a/nodes": "10.64.32.0/19",
    "site/cellar": "192.168.40.0/22",
    "tunnel/cellar/us-west-2/1": "169.254.64.0/30",
}


def test_a_good_plan_has_no_fault() -> None:
    """What stands apart, inside and where it was recorded is right."""
    assert faults(GOOD, GOOD, "10.64.0.0/10") == []


@pytest.mark.parametrize(
    ("path", "block", "finding"),
    [
        ("region/us-west-2", "10.65.0.0/16", "region/us-west-2 moved"),
        ("pods", "10.64.128.0/18", "region/us-west-2 overlaps pods"),
        ("pods", "192.168.0.0/16", "site/cellar overlaps pods"),
        ("services", "172.17.16.0/20", "services overlaps docker"),
        ("pods", "10.128.0.0/13", "pods lies outside"),
        ("region/us-west-2/zone/us-west-2b/edge", "10.64.0.0/25", "edge overlaps"),
        ("region/us-west-2/zone/us-west-2b/edge", "10.65.0.0/24", "edge lies outside"),
        ("tunnel/cellar/us-west-2/2", "169.254.169.252/30", "2 lies outside"),
    ],
)
def test_a_planted_fault_is_found(path: str, block: str, finding: str) -> None:
    """Each kind of wrong block is told by name."""
    findings = faults({**GOOD, path: block}, GOOD, "10.64.0.0/10")

    assert any(all(word in found for word in finding.split()) for found in findings)
