"""The cost of a fleet at list prices, and the AWS quotas that it needs."""

from pathlib import Path

import pytest

from bedplate.catalog import load_catalog
from bedplate.plan import Bill, Record, bill, plan_fleet
from bedplate.plan.cost import CostRange, quota_needs
from bedplate.plan.links import remote_networks
from tests.testlab.fleets.sketch import catalog, group, sketch
from tests.testlab.rehearsal.programs import EXAMPLES, plan_of

LAB = Path(__file__).parents[2] / "examples" / "lab.yaml"
WEST, EAST = {"region": "us-west-2"}, {"region": "us-east-1"}
PRICES = {"g6.xlarge": 0.8048, "g5.xlarge": 1.006, "m7i.large": 0.1008}


def costs(**groups: object) -> Bill:
    """Return the bill of a fleet of these groups, with a catalog that prices machines only."""
    machine_prices = catalog(prices=PRICES)
    return bill(plan_fleet(sketch(groups=groups), Record({}), machine_prices), machine_prices)


def test_a_group_costs_from_its_cheapest_to_its_most_expensive_type() -> None:
    """Two rungs share one maximum: a group of four machines never costs eight."""
    priced = costs(gpu=group(WEST, EAST, types=["g6.xlarge", "g5.xlarge"]))

    assert priced.groups == {"gpu": CostRange(0.8048, 4.024)}
    assert priced.rungs == {"gpu-us-west-2": CostRange(0.8048, 4.024), "gpu-us-east-1": CostRange(0.0, 4.024)}


def test_group_costs_add_up() -> None:
    """The sum has no floating-point noise."""
    priced = costs(gpu=group(WEST), cpu=group(EAST, types=["m7i.large"]))

    assert priced.hourly == CostRange(0.9056, 3.6224)
    assert (priced.date, priced.region) == ("2026-07-20", "us-east-1")


def test_a_region_costs_the_maximum_of_its_groups() -> None:
    """A whole group may run in any region of its ladder."""
    priced = costs(gpu=group(WEST, EAST))

    assert priced.regions["us-west-2"] == CostRange(0.8048, 3.2192)
    assert priced.regions["us-east-1"] == CostRange(0.0, 3.2192)


def test_types_without_a_price_are_listed() -> None:
    """Types without a price are not in the sum and are listed."""
    priced = costs(new=group(WEST, types=["p9.48xlarge", "g6.xlarge"]), newest=group(WEST, types=["p10.large"]))

    assert priced.unknown == ("p10.large", "p9.48xlarge")
    assert priced.hourly == CostRange(0.8048, 3.2192)


def test_reservations_of_one_group_share_its_maximum() -> None:
    """Two reservations of 64 and 16 machines have the group's maximum of 72, not 64 or 80."""
    block = {"zone": "us-west-2a", "market": "reservation", "reservation": "cr-0123456789abcdef0", "reserved": 64}
    other = {**block, "reservation": "cr-0123456789abcdef1", "reserved": 16}
    reserved = group({**WEST, **block}, {**WEST, **other}, types=["g6.xlarge"], nodes={"min": 0, "max": 72})
    catalog_facts = load_catalog()
    plan = plan_fleet(sketch(groups={"gpu": reserved}), Record({}), catalog_facts)

    (vcpus,) = (need for need in quota_needs(plan, catalog_facts) if need.quota.name == "on-demand G and VT vCPUs")

    assert bill(plan, catalog_facts).groups["gpu"].max == pytest.approx(72 * 0.8048)
    assert vcpus.most == 72 * 4


def test_a_fleet_without_groups_has_no_machine_cost() -> None:
    """Without pools the machines cost 0."""
    assert costs().hourly == CostRange(0.0, 0.0)


WORK = {"start": "08:00", "stop": "20:00", "days": "MON-FRI", "zone": "UTC"}


@pytest.mark.parametrize(("schedule", "hours"), [(WORK, 60), (WORK | {"start": "20:00", "stop": "05:30"}, 47.5)])
def test_a_schedule_lowers_the_minimum(schedule: dict[str, str], hours: float) -> None:
    """The minimum costs its hours of the week, of 168; a stop before the start is on the next day."""
    priced = costs(gpu=group(WEST, schedule=schedule))

    assert priced.groups["gpu"] == CostRange(pytest.approx(0.8048 * hours / 168, abs=1e-5), 3.2192)  # type: ignore[arg-type]


def test_extra_disk_performance_costs_extra() -> None:
    """The price of gp3 includes 3,000 IOPS and 125 MiB/s; more is billed."""
    catalog_facts = load_catalog()
    fleet = sketch(groups={"gpu": group(WEST, disk=500, disk_iops=6000, disk_throughput=500)})

    disks = bill(plan_fleet(fleet, Record({}), catalog_facts), catalog_facts).disks

    assert disks.min == pytest.approx((500 * 0.08 + 3000 * 0.005 + 375 * 0.04) / 730, abs=1e-5)


# The number of each resource, times its price an hour.
MACHINES = (1 * 1.3232, 1 * 0.8064), (8 * 1.3232, 20 * 0.8064, 64 * 55.04, 200 * 10.49264, 300 * 4.8384)
DISKS = (500 + 100) * 0.08 / 730, (8 * 500 + 20 * 100 + 64 * 100 + 200 * 100 + 300 * 100) * 0.08 / 730
FIXED = (
    3 * 0.2016 + 3 * (50 + 32) * 0.08 / 730,  # control plane, m7i.xlarge; its disks, and etcd's
    1 * 0.1008 + (50 + 200) * 0.08 / 730,  # hub, m7i.large, its disk and its records
    1 * 0.1134 + 16 * 0.08 / 730,  # laptop gateway, c6in.large, and its disk
    3 * 0.045,  # a NAT gateway a region
    (4 + 3 * 2) * 0.005,  # public addresses: NAT gateways, laptop gateway, two tunnels a connection
    3 * (1 + 2 + 1) * 0.05,  # transit: each region's VPC, two other regions, one site
    3 * 1 * 0.05,  # VPN connections: one site with three regions
    2 * 2 * 0.125,  # resolver endpoints in the home region, in and out: two addresses each
    2 * 0.50 / 730,  # the fleet's zone, one reverse zone
    7 * 1.00 / 730,  # keys: data and alarms in each region, parameters at home
    3 * 0.40 / 730,  # secrets: the keys of each connection
    # alarm metrics: two of 21 pools, of 3 control-plane machines, of the hub and of the laptop gateway; one of the gate
    # of each pool, of 3 NAT gateways, of 3 connections and of 2 copies
    (2 * 26 + 21 + 8) * 0.10 / 730,
)


def test_the_labs_cost_matches_a_manual_calculation() -> None:
    """The figures above use only the price list and the fleet file."""
    priced = bill(plan_of(LAB), load_catalog())

    assert priced.hourly.min == pytest.approx(sum(MACHINES[0]) + DISKS[0] + sum(FIXED), abs=1e-3)
    assert priced.hourly.max == pytest.approx(sum(MACHINES[1]) + DISKS[1] + sum(FIXED), abs=1e-3)


SPOT = {"region": "us-west-2", "market": "spot"}
LAB_PLAN = plan_of(EXAMPLES / "lab.yaml")
Needs = dict[tuple[str, str], tuple[int, int]]


def needed(**groups: object) -> Needs:
    """Return minimum and maximum of each quota by region and name, for a fleet of these groups."""
    catalog = load_catalog()
    plan = plan_fleet(sketch(groups=groups), Record({}), catalog)
    return {(need.region, need.quota.name): (need.least, need.most) for need in quota_needs(plan, catalog)}


def test_the_labs_quotas_match_a_manual_calculation() -> None:
    """VCPUs by family and market, from the types of examples/lab.yaml."""
    quotas = {(need.region, need.quota.name): (need.least, need.most) for need in quota_needs(LAB_PLAN, load_catalog())}

    control, gateway, hub = 3 * 4, 2, 2
    assert quotas["us-west-2", "on-demand standard vCPUs"] == (16 + control + gateway + hub, 20 * 16 + 300 * 96 + 16)
    assert quotas["us-west-2", "on-demand G and VT vCPUs"] == (16, 8 * 16 + 200 * 48)
    assert quotas["us-west-2", "on-demand P vCPUs"] == (0, 64 * 192)
    assert quotas["us-west-2", "spot standard vCPUs"] == (0, 300 * 96)
    assert quotas["us-east-1", "spot G and VT vCPUs"] == (0, 200 * 48)
    assert quotas["eu-north-1", "spot P5 vCPUs"] == (0, 64 * 192)
    # GiB: 62,400 of pools, 16 of the gateway, 3 x (50 + 32) of the control plane, 250 of the hub; 1,024 a TiB, rounded
    # up.
    assert quotas["us-west-2", "gp3 storage, TiB"] == (2, 62)
    # The control plane's: two laptop pools and a site for SSH and for the API; three blocks of each other region and
    # the nodes' group for API, overlay and kubelet; the site for the last two; its own group; the hub for the
    # API, the exporter and the kubelet.
    assert quotas["us-west-2", "rules in a security group"] == (2 * (2 + 1) + 3 * (2 * 3 + 1) + 2 + 1 + 1 + 2,) * 2
    assert quotas["us-west-2", "elastic addresses"] == (2, 2)
    assert quotas["us-west-2", "Auto Scaling groups"] == (10 + 3 + 1 + 1,) * 2


def test_network_interfaces_of_efa_machines_count() -> None:
    """A p5.48xlarge with EFA has 33, so 200 of them need more than the default quota of 5,000 in a region."""
    quotas = needed(train=group(WEST, types=["p5.48xlarge"], nodes={"min": 1, "max": 200}, fabric="efa"))

    least, most = quotas["us-west-2", "network interfaces"]
    assert most - least == 199 * 33
    assert least > 33


def test_routes_grow_with_the_other_places() -> None:
    """A route table of the lab has the VPC, the internet and S3, and each network of the other regions and the site."""
    quotas = {(need.region, need.quota.name): need.most for need in quota_needs(LAB_PLAN, load_catalog())}

    networks = [network.block for network in remote_networks(LAB_PLAN, "us-east-1")]
    assert quotas["us-east-1", "routes in a route table"] == 3 + len(networks) > 6


def test_rungs_of_one_region_and_market_share_the_maximum() -> None:
    """Machines of a reservation count as on-demand, and a group never exceeds its maximum."""
    reserved = {**WEST, "market": "reservation", "reservation": "cr-0123456789abcdef0", "zone": "us-west-2a"}

    quotas = needed(gpu=group(reserved, WEST, SPOT, types=["p5.48xlarge"], nodes={"min": 0, "max": 2}))

    assert quotas["us-west-2", "on-demand P vCPUs"] == (0, 384)
    assert quotas["us-west-2", "spot P5 vCPUs"] == (0, 384)


def test_a_capacity_block_needs_no_quota() -> None:
    """AWS does not count its machines."""
    block = {
        **WEST,
        "market": "capacity-block",
        "reservation": "cr-0123456789abcdef0",
        "zone": "us-west-2a",
    }

    quotas = needed(gpu=group(block, types=["p5.48xlarge"]))

    assert not [name for _, name in quotas if name.endswith(" P vCPUs")]


def test_a_generation_with_its_own_quota_counts_only_there() -> None:
    """Spot has one quota for P5 and one for older generations; on-demand has one for all P."""
    quotas = needed(old=group(SPOT, types=["p4d.24xlarge"]), new=group(SPOT, types=["p5.48xlarge"]))

    assert quotas["us-west-2", "spot P4, P3 and P2 vCPUs"] == (96, 384)
    assert quotas["us-west-2", "spot P5 vCPUs"] == (192, 768)


def test_the_largest_type_of_a_group_counts() -> None:
    """All machines of a group may be of its largest type."""
    quotas = needed(cpu=group(WEST, types=["c7i.large", "c7i.4xlarge"], nodes={"min": 1, "max": 10}))

    assert quotas["us-west-2", "on-demand standard vCPUs"] == (16, 160)


def test_capacity_blocks_of_the_fleet_have_a_fixed_limit() -> None:
    """AWS sells at most 256 machines in all blocks of a day, so the blocks of all regions count at home."""
    blocks = [
        {**WEST, "market": "capacity-block", "reservation": f"cr-0123456789abcdef{number}", "zone": "us-west-2a"}
        for number in range(2)
    ]

    quotas = needed(
        one=group(blocks[0], types=["p5.48xlarge"], nodes={"min": 0, "max": 64}),
        two=group(blocks[1], types=["p5.48xlarge"], nodes={"min": 1, "max": 32}),
    )

    assert quotas["us-west-2", "machines in capacity blocks"] == (1, 96)


def test_calls_of_first_boots_have_fixed_limits() -> None:
    """If all machines of groups start in one minute: names of machines for SSH, and parameters of each region."""
    ssh = group(WEST, EAST, nodes={"min": 30, "max": 300})

    quotas = needed(ssh=ssh, workers=group(EAST, use="kubernetes", nodes={"min": 0, "max": 600}))

    assert quotas["us-west-2", "Route 53 calls a minute"] == (60, 600)
    assert quotas["us-west-2", "parameters read a minute"] == (120, 1200)
    assert quotas["us-east-1", "parameters read a minute"] == (0, 3600)
