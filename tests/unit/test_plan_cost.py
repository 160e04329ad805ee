"""What a fleet costs at list price."""

from pathlib import Path

import pytest

from bedplate.catalog import load_catalog
from bedplate.plan import Bill, Record, bill, plan_fleet
from bedplate.plan.cost import Span
from bedplate.plan.quotas import needs
from tests.testlab.fleets.sketch import catalog, group, sketch
from tests.testlab.rehearsal.programs import EXAMPLES, plan_of

LAB = Path(__file__).parents[2] / "examples" / "lab.yaml"
WEST, EAST = {"region": "us-west-2"}, {"region": "us-east-1"}
PRICES = {"g6.xlarge": 0.8048, "g5.xlarge": 1.006, "m7i.large": 0.1008}


def costs(**groups: object) -> Bill:
    """Return the bill of a fleet of those groups, in a world where only machines cost anything."""
    known = catalog(prices=PRICES)
    return bill(plan_fleet(sketch(groups=groups), Record({}), known), known)


def test_a_span_goes_from_the_cheapest_minimum_to_the_dearest_maximum() -> None:
    """Two rungs share one maximum: a group of four machines never costs eight."""
    priced = costs(gpu=group(WEST, EAST, types=["g6.xlarge", "g5.xlarge"]))

    assert priced.groups == {"gpu": Span(0.8048, 4.024)}
    assert priced.rungs == {"gpu-us-west-2": Span(0.8048, 4.024), "gpu-us-east-1": Span(0.0, 4.024)}


def test_groups_add_up() -> None:
    """The fleet costs what its groups cost, without the noise of floating point."""
    priced = costs(gpu=group(WEST), cpu=group(EAST, types=["m7i.large"]))

    assert priced.hourly == Span(0.9056, 3.6224)
    assert (priced.date, priced.region) == ("2026-07-20", "us-east-1")


def test_a_region_costs_what_may_stand_in_it() -> None:
    """A group may come to stand as a whole in any region of its ladder."""
    priced = costs(gpu=group(WEST, EAST))

    assert priced.regions["us-west-2"] == Span(0.8048, 3.2192)
    assert priced.regions["us-east-1"] == Span(0.0, 3.2192)


def test_types_without_a_price_are_listed() -> None:
    """A sum that leaves something out says what."""
    priced = costs(new=group(WEST, types=["p9.48xlarge", "g6.xlarge"]), newest=group(WEST, types=["p10.large"]))

    assert priced.unknown == ("p10.large", "p9.48xlarge")
    assert priced.hourly == Span(0.8048, 3.2192)


def test_reservations_that_a_group_fills_together_are_paid_together() -> None:
    """Two of 64 and 16 machines hold the 72 that the group may have: the bound is neither 64 nor 80."""
    block = {"zone": "us-west-2a", "market": "reservation", "reservation": "cr-0123456789abcdef0", "reserved": 64}
    other = {**block, "reservation": "cr-0123456789abcdef1", "reserved": 16}
    one = group({**WEST, **block}, {**WEST, **other}, types=["g6.xlarge"], nodes={"min": 0, "max": 72})
    known = load_catalog()
    plan = plan_fleet(sketch(groups={"gpu": one}), Record({}), known)

    (vcpus,) = (need for need in needs(plan, known) if need.quota.name == "on-demand G and VT vCPUs")

    assert bill(plan, known).groups["gpu"].max == pytest.approx(72 * 0.8048)
    assert vcpus.most == 72 * 4


def test_a_fleet_without_groups_costs_no_machines() -> None:
    """No pools, no price."""
    assert costs().hourly == Span(0.0, 0.0)


def test_a_faster_disk_costs_more_than_a_large_one() -> None:
    """3,000 operations a second and 125 MiB/s come with gp3; what is above them is paid for."""
    known = load_catalog()
    fleet = sketch(groups={"gpu": group(WEST, disk=500, disk_iops=6000, disk_throughput=500)})

    disks = bill(plan_fleet(fleet, Record({}), known), known).disks

    assert disks.min == pytest.approx((500 * 0.08 + 3000 * 0.005 + 375 * 0.04) / 730, abs=1e-5)


# Each line as an accountant would write it: how many, at how much an hour.
MACHINES = (1 * 1.3232, 1 * 0.8064), (8 * 1.3232, 20 * 0.8064, 64 * 55.04, 200 * 10.49264, 300 * 4.8384)
DISKS = (500 + 100) * 0.08 / 730, (8 * 500 + 20 * 100 + 64 * 100 + 200 * 100 + 300 * 100) * 0.08 / 730
STANDING = (
    3 * 0.2016 + 3 * (50 + 32) * 0.08 / 730,  # control plane, m7i.xlarge; its disks, and etcd's
    1 * 0.1134 + 16 * 0.08 / 730,  # laptop gateway, c6in.large, and its disk
    3 * 0.045,  # a NAT gateway a region
    4 * 0.005,  # public addresses: of those, and of the laptop gateway
    3 * (1 + 2 + 1) * 0.05,  # transit: each region's VPC, two other regions, one site
    3 * 1 * 0.05,  # VPN connections: one site with three regions
    2 * 0.125,  # where names are asked for: two addresses at home
    2 * 0.50 / 730,  # the fleet's zone, one reverse zone
    7 * 1.00 / 730,  # keys: data and alarms in each region, parameters at home
    3 * 0.40 / 730,  # secrets: the keys of each connection
    31 * 0.10 / 730,  # alarms: 21 pools, 3 of the control plane, 3 NAT gateways, 1 laptop gateway, 3 connections
)


def test_the_lab_costs_what_a_hand_calculation_says() -> None:
    """From the price list and the file alone, without a line of the product."""
    priced = bill(plan_of(LAB), load_catalog())

    assert priced.hourly.min == pytest.approx(sum(MACHINES[0]) + DISKS[0] + sum(STANDING), abs=1e-3)
    assert priced.hourly.max == pytest.approx(sum(MACHINES[1]) + DISKS[1] + sum(STANDING), abs=1e-3)


PLAN_QUOTAS_WEST = {"region": "us-west-2"}
SPOT = {"region": "us-west-2", "market": "spot"}
PLAN_QUOTAS_LAB = plan_of(EXAMPLES / "lab.yaml")
Found = dict[tuple[str, str], tuple[int, int]]


def needed(**groups: object) -> Found:
    """Return least and most of each quota by region and name, for a fleet of those groups."""
    catalog = load_catalog()
    plan = plan_fleet(sketch(groups=groups), Record({}), catalog)
    return {(need.region, need.quota.name): (need.least, need.most) for need in needs(plan, catalog)}


def test_the_lab_needs_what_a_hand_calculation_says() -> None:
    """Processors by family and market, from the types of examples/lab.yaml and nothing else."""
    found = {(need.region, need.quota.name): (need.least, need.most) for need in needs(PLAN_QUOTAS_LAB, load_catalog())}

    control, gateway = 3 * 4, 2
    assert found["us-west-2", "on-demand standard vCPUs"] == (16 + control + gateway, 20 * 16 + 300 * 96 + 14)
    assert found["us-west-2", "on-demand G and VT vCPUs"] == (16, 8 * 16 + 200 * 48)
    assert found["us-west-2", "on-demand P vCPUs"] == (0, 64 * 192)
    assert found["us-west-2", "spot standard vCPUs"] == (0, 300 * 96)
    assert found["us-east-1", "spot G and VT vCPUs"] == (0, 200 * 48)
    assert found["eu-north-1", "spot P5 vCPUs"] == (0, 64 * 192)
    # GiB: 62,400 of pools, 16 of the gateway, 3 x (50 + 32) of the control plane; 1,024 a TiB, rounded up.
    assert found["us-west-2", "gp3 storage, TiB"] == (1, 62)
    # The control plane's: two laptop pools and a site for SSH and for the API; three blocks of each other region and
    # the nodes' group for API, overlay and kubelet; the site for the last two; its own group.
    assert found["us-west-2", "rules in a security group"] == (2 * (2 + 1) + 3 * (2 * 3 + 1) + 2 + 1,) * 2
    assert found["us-west-2", "elastic addresses"] == (2, 2)
    assert found["us-west-2", "Auto Scaling groups"] == (10 + 3 + 1,) * 2


def test_rungs_of_one_region_and_market_share_the_maximum() -> None:
    """A reservation's machines count as those on demand, and a group is never more than its maximum."""
    held = {**PLAN_QUOTAS_WEST, "market": "reservation", "reservation": "cr-0123456789abcdef0", "zone": "us-west-2a"}

    found = needed(gpu=group(held, PLAN_QUOTAS_WEST, SPOT, types=["p5.48xlarge"], nodes={"min": 0, "max": 2}))

    assert found["us-west-2", "on-demand P vCPUs"] == (0, 384)
    assert found["us-west-2", "spot P5 vCPUs"] == (0, 384)


def test_a_capacity_block_needs_no_quota() -> None:
    """AWS counts its machines nowhere."""
    block = {
        **PLAN_QUOTAS_WEST,
        "market": "capacity-block",
        "reservation": "cr-0123456789abcdef0",
        "zone": "us-west-2a",
    }

    found = needed(gpu=group(block, types=["p5.48xlarge"]))

    assert not [name for _, name in found if name.endswith(" P vCPUs")]


def test_a_generation_with_a_quota_of_its_own_counts_there_alone() -> None:
    """Spot has one quota for P5, another for the generations before it; on demand all P are one."""
    found = needed(old=group(SPOT, types=["p4d.24xlarge"]), new=group(SPOT, types=["p5.48xlarge"]))

    assert found["us-west-2", "spot P4, P3 and P2 vCPUs"] == (96, 384)
    assert found["us-west-2", "spot P5 vCPUs"] == (192, 768)


def test_the_largest_type_of_a_group_counts() -> None:
    """Any of them may be all of the machines."""
    found = needed(cpu=group(PLAN_QUOTAS_WEST, types=["c7i.large", "c7i.4xlarge"], nodes={"min": 1, "max": 10}))

    assert found["us-west-2", "on-demand standard vCPUs"] == (16, 160)
