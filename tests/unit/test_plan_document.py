"""`plan --json`, the values of a plan that other packages read, and the fleet file key of a resource."""

import json
from dataclasses import replace
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

import pytest

from bedplate.catalog import load_catalog
from bedplate.load import load_fleet
from bedplate.plan import FleetPlan, Record, plan_document, plan_fleet
from bedplate.plan.stacks import origin
from bedplate.spec import Fleet
from tests.testlab.fleets.sketch import LANS, catalog, group, laptops, sketch

STORAGE = {
    "home": {"kind": "efs", "region": "us-west-2", "mount": "/home"},
    "sets": {"kind": "s3", "regions": ("us-west-2", "us-east-1"), "expire_days": 30},
    "nas": {"kind": "nfs", "site": "cellar", "machine": "gate", "export": "/srv", "mount": "/data"},
}


@pytest.fixture
def fleet() -> Fleet:
    """Return a fleet with one of each resource."""
    return sketch(
        {"us-west-2": ["us-west-2a"], "us-east-1": ["us-east-1a"]},
        sites=LANS,
        groups={"gpu": group({"region": "us-west-2"})},
        storage=STORAGE,
        vpn=laptops({"region": "us-west-2"}, {"site": "cellar"}),
    )


def test_the_document_has_the_stable_keys(fleet: Fleet) -> None:
    """Other programs read these keys: blocks by path, addresses by machine, pools."""
    document = json.loads(json.dumps(plan_document(plan_fleet(fleet, Record({}), catalog()))))

    assert document["blocks"]["region/us-west-2/zone/us-west-2a/nodes"] == "10.64.32.0/19"
    assert document["blocks"]["tunnel/cellar/us-east-1/2"] == "169.254.64.12/30"
    assert document["addresses"] == {"gate.cellar": "192.168.40.1"}
    assert document["pools"] == [
        {
            "group": "gpu",
            "region": "us-west-2",
            "zones": ["us-west-2a"],
            "market": "on-demand",
            "types": ["g6.xlarge"],
            "min": 1,
            "max": 4,
            "stack": "lab.us-west-2",
            "name": "gpu-us-west-2",
        }
    ]


def test_bucket_names_contain_fleet_store_account_and_region(fleet: Fleet) -> None:
    """The account number makes a bucket's name unique in AWS; NFS stores have no bucket or file system."""
    plan = plan_fleet(fleet, Record({}), catalog())

    assert [(bucket.name, bucket.expire_days) for bucket in plan.buckets] == [
        ("lab-sets-111122223333-us-west-2", 30),
        ("lab-sets-111122223333-us-east-1", 30),
    ]
    assert [store.store for store in plan.files] == ["home"]


def test_plan_values_match_the_blocks(fleet: Fleet) -> None:
    """The blocks of regions, sites, pools and tunnels are those of the document."""
    plan = plan_fleet(fleet, Record({}), catalog())

    assert plan.home.name == "us-west-2"
    assert plan.region("us-east-1").zones[0].edge == plan.blocks["region/us-east-1/zone/us-east-1a/edge"]
    assert plan.sites[0].machines["gate"].address == IPv4Address("192.168.40.1")
    assert [pool.place for pool in plan.laptops] == ["us-west-2", "cellar"]
    assert {tunnel.inside for tunnel in plan.tunnels} <= set(plan.blocks.values())


def test_an_unknown_region_is_a_key_error(fleet: Fleet) -> None:
    """An unknown region is a bug of the caller."""
    with pytest.raises(KeyError, match="eu-north-1"):
        plan_fleet(fleet, Record({}), catalog()).region("eu-north-1")


def test_a_plan_knows_its_new_and_retired_blocks(fleet: Fleet) -> None:
    """New and retired blocks are both in the next record."""
    old = {"region/us-west-2": IPv4Network("10.64.0.0/16"), "pods": IPv4Network("10.112.0.0/13")}

    plan = plan_fleet(fleet, Record(old), catalog())

    assert dict(plan.retired) == {"pods": old["pods"]}
    assert "region/us-west-2" not in plan.new_blocks
    assert plan.recorded().blocks == {**old, **plan.new_blocks}


LAB = Path(__file__).parents[2] / "examples/lab.yaml"


@pytest.fixture(scope="module")
def plan() -> FleetPlan:
    """Return the plan of the example."""
    catalog = load_catalog()
    return plan_fleet(load_fleet(LAB, catalog).fleet, Record({}), catalog)


@pytest.mark.parametrize(
    ("stack", "name", "key"),
    [
        ("lab.us-east-1", "lab-train-us-east-1d", "groups.train.ladder.2"),
        ("lab.eu-north-1", "lab-train-eu-north-1a-spot", "groups.train.ladder.3"),
        ("lab.us-west-2", "lab-us-west-2a-nodes", "regions.us-west-2.zones"),
        ("lab.us-west-2", "lab-home", "storage.home"),
        ("lab.links", "lab-us-east-1", "regions.us-east-1"),
        ("lab.us-west-2", "lab", "regions.us-west-2"),
        ("lab.shared", "lab-ssh", "name"),
    ],
)
def test_the_origin_is_the_longest_matching_name(plan: FleetPlan, stack: str, name: str, key: str) -> None:
    """The key of a resource is that of the longest known prefix of its name."""
    assert origin(plan, stack, name) == key


def test_the_origin_of_a_removed_resource_is_in_the_earlier_plan(plan: FleetPlan) -> None:
    """A removed resource has the key of the earlier fleet file."""
    later = replace(plan, files=())

    assert origin(later, "lab.us-west-2", "lab-home", plan) == "storage.home"
    assert origin(later, "lab.us-west-2", "lab-home") == "regions.us-west-2"


def test_an_origin_has_a_line_and_column() -> None:
    """An origin is shown with line and column, so that editors can open it."""
    reading = load_fleet(LAB, load_catalog()).reading

    place, key = reading.where("groups.train.ladder.2").split()

    line = LAB.read_text(encoding="utf-8").splitlines()[int(place.split(":")[-2]) - 1]
    assert (key, line.strip()) == ("groups.train.ladder.2", "- {region: us-east-1}")
