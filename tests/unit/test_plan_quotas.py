"""What a fleet needs of each region's quotas."""

from bedplate.catalog import load_catalog
from bedplate.plan import Record, plan_fleet
from bedplate.plan.quotas import needs
from tests.support.declared import EXAMPLES, plan_of
from tests.support.sketch import group, sketch

WEST = {"region": "us-west-2"}
SPOT = {"region": "us-west-2", "market": "spot"}
LAB = plan_of(EXAMPLES / "lab.yaml")
Found = dict[tuple[str, str], tuple[int, int]]


def needed(**groups: object) -> Found:
    """Return least and most of each quota by region and name, for a fleet of those groups."""
    catalog = load_catalog()
    plan = plan_fleet(sketch(groups=groups), Record({}), catalog)
    return {(need.region, need.quota.name): (need.least, need.most) for need in needs(plan, catalog)}


def test_the_lab_needs_what_a_hand_calculation_says() -> None:
    """Processors by family and market, from the types of examples/lab.yaml and nothing else."""
    found = {(need.region, need.quota.name): (need.least, need.most) for need in needs(LAB, load_catalog())}

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
    held = {**WEST, "market": "reservation", "reservation": "cr-0123456789abcdef0", "zone": "us-west-2a"}

    found = needed(gpu=group(held, WEST, SPOT, types=["p5.48xlarge"], nodes={"min": 0, "max": 2}))

    assert found["us-west-2", "on-demand P vCPUs"] == (0, 384)
    assert found["us-west-2", "spot P5 vCPUs"] == (0, 384)


def test_a_capacity_block_needs_no_quota() -> None:
    """AWS counts its machines nowhere."""
    block = {**WEST, "market": "capacity-block", "reservation": "cr-0123456789abcdef0", "zone": "us-west-2a"}

    found = needed(gpu=group(block, types=["p5.48xlarge"]))

    assert not [name for _, name in found if name.endswith(" P vCPUs")]


def test_a_generation_with_a_quota_of_its_own_counts_there_alone() -> None:
    """Spot has one quota for P5, another for the generations before it; on demand all P are one."""
    found = needed(old=group(SPOT, types=["p4d.24xlarge"]), new=group(SPOT, types=["p5.48xlarge"]))

    assert found["us-west-2", "spot P4, P3 and P2 vCPUs"] == (96, 384)
    assert found["us-west-2", "spot P5 vCPUs"] == (192, 768)


def test_the_largest_type_of_a_group_counts() -> None:
    """Any of them may be all of the machines."""
    found = needed(cpu=group(WEST, types=["c7i.large", "c7i.4xlarge"], nodes={"min": 1, "max": 10}))

    assert found["us-west-2", "on-demand standard vCPUs"] == (16, 160)
