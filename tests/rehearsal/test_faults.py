"""Tests of injected faults: what fails, and what a run after the faults creates."""

from collections.abc import Iterator

import pulumi_aws as aws
import pytest
from pulumi import ResourceOptions

from bedplate.rehearsal.faults import Fault, NoCapacity, RegionDown
from bedplate.rehearsal.kinds.ec2 import SUBNET, described
from bedplate.rehearsal.rehearse import Report, rehearse
from bedplate.rehearsal.simulation import Simulation, running
from bedplate.rehearsal.stack import SharedState, run
from bedplate.rehearsal.state import ResourceError
from bedplate.report.rehearsal import fault_lines
from tests.testlab.kinds.world import IMAGE
from tests.testlab.rehearsal.programs import ACCOUNT, changes, parameter, stack, vpc

ZONE = "us-west-2a"
NO_TYPE = NoCapacity("m7i.large", ZONE)


@pytest.fixture
def world() -> Iterator[SharedState]:
    """Return a new world for each test."""
    with running(ACCOUNT) as simulation:
        yield SharedState(simulation)


def _inject(world: SharedState, *faults: Fault) -> None:
    world.simulation.faults.active = frozenset(faults)


def _two_regions() -> None:
    for region in ("us-west-2", "us-east-1"):
        provider = aws.Provider(region, region=region)
        parameter(region, opts=ResourceOptions(provider=provider))


def _pool(*types: str, zones: str = "a", **template: object) -> None:
    outer = vpc("outer")
    subnets = [
        aws.ec2.Subnet(f"zone-{zone}", vpc_id=outer.id, cidr_block=block, availability_zone=f"us-west-2{zone}")
        for zone, block in zip(zones, ("10.1.0.0/24", "10.1.1.0/24"), strict=False)
    ]
    launch = aws.ec2.LaunchTemplate("pool", image_id=IMAGE, instance_type=types[0], **template)
    spec = {"launch_template_id": launch.id, "version": "1"}
    overrides = [{"instance_type": instance_type} for instance_type in types]
    policy = {"launch_template": {"launch_template_specification": spec, "overrides": overrides}}
    sizes = {"min_size": 2, "max_size": 4, "wait_for_capacity_timeout": "0"}
    ids = [subnet.id for subnet in subnets]
    aws.autoscaling.Group("pool", name="pool", vpc_zone_identifiers=ids, mixed_instances_policy=policy, **sizes)


def _instances(simulation: Simulation) -> int:
    (group,) = simulation.call("autoscaling", "us-west-2", "describe_auto_scaling_groups", {})["AutoScalingGroups"]
    return len(group["Instances"])


def test_a_region_that_is_down_fails_once(world: SharedState) -> None:
    """Only the provider of the region fails; its resources are skipped, and other regions are created."""
    _inject(world, RegionDown("us-east-1"))

    result = run(stack(_two_regions), world)

    failures = [(failure.urn.rpartition("::")[2], failure.code, failure.skipped) for failure in result.failures]
    assert failures == [("us-east-1", "RequestError", False), ("us-east-1", "Skipped", True)]
    assert "us-east-1" in result.failures[0].message
    assert changes(result) == {"us-west-2": "create"}


def test_an_id_in_a_region_that_is_down_is_not_reported_missing(world: SharedState) -> None:
    """AWS did not answer, so nothing is known about the resource."""
    _inject(world, RegionDown("us-east-1"))

    with pytest.raises(ResourceError, match="RequestError"):
        described(world.simulation.region("us-east-1"), SUBNET, "subnet-1")


def test_missing_resources_are_created_after_the_fault() -> None:
    """A second run creates them, a third run changes nothing, and only failures of the fault are ignored."""
    report = rehearse(ACCOUNT, [[stack(_two_regions)]], faults=[RegionDown("us-east-1")])

    assert report.is_stable
    assert report.is_partial
    assert list(fault_lines(report)) == [
        "",
        "fault region-down:us-east-1: 1 request failed",
        "  lab: 1 of 2 resources missing",
        "after the faults: a second run created the 1 missing resource, a third run changed nothing",
    ]


def test_a_failure_without_a_fault_counts() -> None:
    """A failure after the end of the faults is a real failure."""
    report = rehearse(ACCOUNT, [[stack(lambda: vpc("huge", "10.0.0.0/8"))]], faults=[RegionDown("us-east-1")])

    assert report.real_failures
    assert list(fault_lines(report))[1:] == [
        "fault region-down:us-east-1: 0 requests failed, no resource is affected",
        "after the faults: resources are missing, see above",
    ]


def test_no_fault_is_reported_without_faults() -> None:
    """A rehearsal without faults prints nothing about them."""
    assert not list(fault_lines(Report((), seconds=0.0, calls=0)))


def test_a_group_without_capacity_is_created_without_instances(world: SharedState) -> None:
    """The failed launch is a scaling activity, and the instances start after the fault."""
    _inject(world, NO_TYPE)

    result = run(stack(lambda: _pool("m7i.large")), world)

    name = {"AutoScalingGroupName": "pool"}
    activities = world.simulation.call("autoscaling", "us-west-2", "describe_scaling_activities", name)["Activities"]
    (shortage,) = world.simulation.faults.shortages.values()
    before = _instances(world.simulation)
    world.simulation.end_faults()
    assert not result.failures
    assert [activity["StatusCode"] for activity in activities] == ["Failed"]
    assert "sufficient m7i.large capacity" in activities[0]["StatusMessage"]
    assert (shortage.group, shortage.desired, shortage.running, before) == ("pool", 2, 0, 0)
    assert _instances(world.simulation) == 2
    assert changes(run(stack(lambda: _pool("m7i.large")), world)) == {}


@pytest.mark.parametrize(
    ("types", "zones", "template"),
    [
        (("m7i.large", "c7i.large"), "a", {}),
        (("m7i.large",), "ab", {}),
        (("c7i.large",), "a", {}),
        (
            ("m7i.large",),
            "a",
            {
                "capacity_reservation_specification": {
                    "capacity_reservation_target": {"capacity_reservation_id": "cr-0123456789abcdef0"}
                }
            },
        ),
    ],
    ids=["another type", "another zone", "not its type", "reserved"],
)
def test_a_group_with_capacity_starts_its_instances(
    world: SharedState, types: tuple[str, ...], zones: str, template: dict[str, object]
) -> None:
    """One type in one zone is enough, and a capacity reservation needs none."""
    _inject(world, NO_TYPE)

    run(stack(lambda: _pool(*types, zones=zones, **template)), world)

    assert not world.simulation.faults.shortages
    assert _instances(world.simulation) == 2


def test_a_group_without_capacity_is_reported() -> None:
    """The report has the number of running instances."""
    report = rehearse(ACCOUNT, [[stack(lambda: _pool("m7i.large"))]], faults=[NO_TYPE])

    assert list(fault_lines(report))[1:] == [
        "fault no-capacity:m7i.large@us-west-2a: 1 request failed",
        "  pool   us-west-2   0 of 2 instances running",
        "after the faults: nothing was missing, a third run changed nothing",
    ]
