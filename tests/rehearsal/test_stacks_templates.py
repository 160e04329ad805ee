"""Pools of every market, fabric and use, made in the simulated AWS: what EC2 would refuse fails here."""

from typing import Any

import pytest

from bedplate.catalog import load_catalog
from bedplate.cli.waves import waves
from bedplate.plan import FleetPlan, Record, plan_fleet
from bedplate.rehearsal.rehearse import rehearse
from bedplate.rehearsal.report import Phase, Report
from bedplate.rehearsal.snapshot import Entry
from tests.conftest import Expect
from tests.support.pooled import BOUGHT
from tests.support.sketch import cluster, group, sketch

HERE = "us-west-2a"
IMAGE = "ami-0123456789abcdef0"
PLACEMENT = "aws:ec2/placementGroup:PlacementGroup"
TEMPLATE = "aws:ec2/launchTemplate:LaunchTemplate"


def _plan() -> FleetPlan:
    """Return a fleet whose groups are a use with or without a fabric, each over a ladder of all markets."""
    ladder = [{**rung, "zone": HERE} for rung in BOUGHT.values()]
    fabric = {"types": ("p4d.24xlarge",), "fabric": "efa", "disk": 400, "disk_throughput": 500}
    groups = {
        f"{use}-{word}": group(*ladder, use=use, nodes={"min": 0, "max": 4}, **parts)
        for use in ("ssh", "kubernetes")
        for word, parts in (("plain", {"types": ("g6.4xlarge",)}), ("fabric", fabric))
    }
    fleet = sketch({"us-west-2": (HERE,)}, groups=groups, kubernetes=cluster())
    return plan_fleet(fleet, Record({}, images={"us-west-2/x86_64": IMAGE}), load_catalog())


@pytest.fixture(scope="module")
def report() -> Report:
    """Create the region's stack, run it again, and destroy it."""
    plan = _plan()
    return rehearse(plan.account, waves(plan, ("us-west-2",)))


@pytest.fixture(scope="module")
def made(report: Report) -> dict[str, list[Entry]]:
    """Give what was made, by type."""
    stack = next(one for one in report.stacks if one.name == "lab.us-west-2")
    found: dict[str, list[Entry]] = {}
    for entry in stack.runs[Phase.CREATE].snapshot.entries.values():
        found.setdefault(entry.type, []).append(entry)
    return found


def test_every_market_fabric_and_use_rehearses(report: Report) -> None:
    """All sixteen are made, a second run changes nothing, and nothing is refused."""
    assert not [failure for stack in report.stacks for failure in stack.failures]
    assert report.ok


def test_what_a_template_asks_for_is_known(made: dict[str, list[Entry]], expect: Expect) -> None:
    """How each pool's machines start, in a line for each thing that its market, fabric or use decides."""
    pools = [entry for entry in made[TEMPLATE] if entry.name != "lab-laptops"]

    expect("stacks/templates.txt", "\n".join(_lines(entry) for entry in sorted(pools, key=lambda one: one.name)))


def test_only_what_may_be_placed_has_a_placement_group(made: dict[str, list[Entry]]) -> None:
    """On the fabric, on demand and on spot, one for each pool; a block takes none, a reservation only its own."""
    names = {entry.name for entry in made[PLACEMENT]}

    assert names == {f"lab-{use}-fabric-{HERE}{end}" for use in ("ssh", "kubernetes") for end in ("", "-spot")}
    assert {entry.inputs["strategy"] for entry in made[PLACEMENT]} == {"cluster"}


def _lines(entry: Entry) -> str:
    inputs: dict[str, Any] = dict(entry.inputs)
    nics = [
        f"{one.get('networkCardIndex', 0)}/{one['deviceIndex']} {one.get('interfaceType', 'interface')}"
        for one in inputs["networkInterfaces"]
    ]
    disk = inputs["blockDeviceMappings"][0]["ebs"]
    target = inputs.get("capacityReservationSpecification", {}).get("capacityReservationTarget", {})
    told = {
        "image": inputs["imageId"],
        "type": inputs["instanceType"],
        "hops": inputs["metadataOptions"]["httpPutResponseHopLimit"],
        "disk": f"{disk['volumeSize']} GiB, {disk['throughput']} MiB/s, {disk['iops']} a second",
        "interfaces": ", ".join(nics),
        "placement": inputs.get("placement", {}).get("groupName", "-"),
        "market": inputs.get("instanceMarketOptions", {}).get("marketType", "-"),
        "reservation": target.get("capacityReservationId", "-"),
        "tagged": ", ".join(one["resourceType"] for one in inputs["tagSpecifications"]),
    }
    return "\n".join((entry.name, *(f"  {key:<12} {value}" for key, value in told.items()), ""))
