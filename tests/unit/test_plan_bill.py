"""What a fleet costs at list price."""

from pathlib import Path

import pytest

from bedplate.catalog import load_catalog
from bedplate.plan import Bill, Record, bill, plan_fleet
from bedplate.plan.quotas import needs
from bedplate.plan.span import Span
from tests.support.declared import plan_of
from tests.support.sketch import catalog, group, sketch

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
