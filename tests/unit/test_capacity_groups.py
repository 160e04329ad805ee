"""Auto Scaling groups as the controller observes and changes them, in moto, which fails and loses replies."""

from collections.abc import Iterator
from dataclasses import replace
from threading import Event
from time import monotonic
from typing import Any

import boto3
import pytest
from moto import mock_aws

from bedplate.account import groups as module
from bedplate.account.client import AwsClient
from bedplate.account.groups import Changed, FleetGroups
from bedplate.capacity.observation import NOT_READY, SetDesired, SetZones, Terminate
from bedplate.capacity.planner import Memory, decide
from bedplate.catalog import load_catalog
from bedplate.errors import InputError, PartialError
from bedplate.operate.capacity_loop import PERIOD
from bedplate.plan.capacity import capacity_document, capacity_plan, read_capacity_document
from bedplate.spec.sites import Use
from tests.testlab.fakes.scaling import ScalingCloud
from tests.testlab.fleets.variants import lab_plan

WEST, EAST = "sim-us-west-2-spot", "sim-us-east-1-spot"


@pytest.fixture
def cloud(monkeypatch: pytest.MonkeyPatch) -> Iterator[ScalingCloud]:
    """Yield the deployed groups of the lab's workers."""
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-west-2")
    with mock_aws():
        cloud = ScalingCloud(replace(lab_plan(), pools=tuple(p for p in lab_plan().pools if p.group == "sim")))
        cloud.deploy(Use.KUBERNETES)
        yield cloud


@pytest.fixture
def groups(cloud: ScalingCloud) -> FleetGroups:
    """Return the groups of the plan as members of the control plane have it."""
    capacity = capacity_plan(cloud.plan, load_catalog())
    return FleetGroups(AwsClient(cloud), read_capacity_document(capacity_document(capacity), "capacity.json"))


def _described(pool: str) -> dict[str, Any]:
    region = "us-west-2" if "us-west-2" in pool else "us-east-1"
    client = boto3.client("autoscaling", region)
    (group,) = client.describe_auto_scaling_groups(AutoScalingGroupNames=[f"lab-{pool}"])["AutoScalingGroups"]
    return dict(group)


def test_all_regions_are_observed(cloud: ScalingCloud, groups: FleetGroups) -> None:
    """Pools in ladder order with the sizes of the plan, machines with their launch time, failures with a code."""
    groups.set_desired(SetDesired(WEST, 2, ""), groups.observe(cloud.time))
    cloud.report(f"lab-{EAST}", "There is no Spot capacity available that matches your request.", "us-east-1a")
    seen = groups.observe(cloud.time)

    assert [(pool.name, pool.desired, pool.max) for pool in seen.pools] == [
        (WEST, 2, 300),
        (EAST, 0, 298),
        ("sim-us-west-2", 0, 298),
    ]
    assert {pool.size.pods for pool in seen.pools} == {110}
    assert [(machine.pool, machine.ready) for machine in seen.machines] == [(WEST, True)] * 2
    assert all(abs(machine.launched - cloud.time) < 60 for machine in seen.machines)
    (failure,) = seen.activities
    assert (failure.pool, failure.code, failure.zone) == (EAST, "InsufficientInstanceCapacity", "us-east-1a")


@pytest.mark.parametrize("is_mixed", [False, True], ids=["one type", "a mixed instances policy"])
def test_the_launch_templates_of_groups_and_machines_are_observed(groups: FleetGroups, is_mixed: bool) -> None:  # noqa: FBT001
    """A machine keeps the version with which it started; the group has that of its next machines."""
    ec2, scaling = boto3.client("ec2", "us-west-2"), boto3.client("autoscaling", "us-west-2")
    data = {"ImageId": "ami-12c6146b", "InstanceType": "c7i.large"}
    ec2.create_launch_template(LaunchTemplateName="sim", LaunchTemplateData=data)
    ec2.create_launch_template_version(LaunchTemplateName="sim", LaunchTemplateData=data)

    def use(version: str, desired: int) -> None:
        spec = {"LaunchTemplateName": "sim", "Version": version}
        policy = {"LaunchTemplate": {"LaunchTemplateSpecification": spec, "Overrides": []}}
        source: dict[str, Any] = {"MixedInstancesPolicy": policy} if is_mixed else {"LaunchTemplate": spec}
        scaling.update_auto_scaling_group(AutoScalingGroupName=f"lab-{WEST}", DesiredCapacity=desired, **source)

    use("1", 1)
    use("2", 1)
    seen = groups.observe(1e9)
    assert [pool.template for pool in seen.pools if pool.name == WEST] == ["2"]
    assert [machine.template for machine in seen.machines] == ["1"]


def test_failed_first_boots_open_the_breaker_of_their_pool(cloud: ScalingCloud, groups: FleetGroups) -> None:
    """Machines abandon their lifecycle hooks after minutes: a failed launch counts from its end, not from its start."""
    abandoned = "Lifecycle Action with token 4c1a7e0b was abandoned: Lifecycle Action Completed with ABANDON Result"
    text = f"Instance failed to complete user's Lifecycle Action: {abandoned}"
    for number in range(6):
        cloud.report(f"lab-{WEST}", text, f"us-west-2{'ab'[number % 2]}", f"i-0123456789abcdef{number}", seconds=430)

    seen = groups.observe(cloud.time)
    _, memory = decide(seen, Memory())

    assert {round(launch.end - launch.time) for launch in seen.activities} == {430}
    assert {name: breaker.code for name, breaker in memory.breakers.items()} == {WEST: NOT_READY}


def test_a_cancelled_launch_is_no_failure(cloud: ScalingCloud, groups: FleetGroups) -> None:
    """AWS cancels what is not needed any more; only a cause that is known counts."""
    cloud.report(f"lab-{WEST}", "", "us-west-2a")
    cloud.activities(f"lab-{WEST}")[0]["StatusCode"] = "Cancelled"
    assert groups.observe(cloud.time).activities == ()


def test_limits_of_the_fleet_file_reach_the_planner(cloud: ScalingCloud) -> None:
    """Spare machines and ceilings, through the plan of a member."""
    capacity = capacity_plan(replace(lab_plan(), max_cost=900.0), load_catalog())
    member = read_capacity_document(capacity_document(capacity), "capacity.json")
    settings = FleetGroups(AwsClient(cloud), member).observe(cloud.time).settings

    assert (settings.spare, settings.max_cost, settings.fleet_max_cost) == ({"burst": 1}, {"burst": 400.0}, 900.0)
    assert {pool.idle for pool in member.pools if pool.group == "burst"} == {1200.0}


def test_defect_more_than_fifty_groups_are_read() -> None:
    """AWS describes 50 at once; each of 60 groups has its size."""
    template = next(pool for pool in lab_plan().pools if pool.name == WEST)
    pools = tuple(replace(template, name=f"pool-{number}", min=number % 3) for number in range(60))
    with mock_aws():
        cloud = ScalingCloud(replace(lab_plan(), pools=pools))
        cloud.deploy(Use.KUBERNETES)
        seen = FleetGroups(AwsClient(cloud), capacity_plan(cloud.plan, load_catalog())).observe(cloud.time)
    assert {pool.name: pool.min for pool in seen.pools} == {pool.name: pool.min for pool in pools}


def _silence(patch: pytest.MonkeyPatch, *regions: str) -> None:
    """Let AWS not answer for some regions."""
    answer = AwsClient.pages

    def pages(client: AwsClient, service: str, region: str, operation: str, **params: object) -> Iterator[Any]:
        if region in regions:
            raise PartialError(f"cannot connect to {service}")
        return answer(client, service, region, operation, **params)

    patch.setattr(AwsClient, "pages", pages)


def test_a_round_needs_an_answer(cloud: ScalingCloud, groups: FleetGroups, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without AWS nothing is known, whatever was known before."""
    groups.observe(cloud.time)
    _silence(monkeypatch, "us-east-1", "us-west-2")
    with pytest.raises(PartialError, match="cannot read the Auto Scaling groups: us-east-1"):
        groups.observe(cloud.time)


def test_a_region_that_has_never_answered_is_frozen(
    cloud: ScalingCloud, groups: FleetGroups, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A controller that starts in an outage acts in the other regions; the first answer shows the machines."""
    groups.set_desired(SetDesired(EAST, 1, ""), groups.observe(cloud.time))
    started = FleetGroups(groups.client, groups.plan)
    with monkeypatch.context() as patch:
        _silence(patch, "us-east-1")
        seen = started.observe(cloud.time)
        decision, _ = decide(seen, Memory())
        started.set_desired(SetDesired(WEST, 1, ""), seen)
    assert [pool.name for pool in seen.pools if pool.silent] == [EAST]
    assert not seen.machines
    assert not decision.actions
    assert sorted(machine.pool for machine in started.observe(cloud.time).machines) == [EAST, WEST]


def test_a_region_that_does_not_answer_any_more_is_as_it_was(
    cloud: ScalingCloud, groups: FleetGroups, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The controller goes on in the other regions; a new answer ends the silence."""
    groups.set_desired(SetDesired(EAST, 1, ""), groups.observe(cloud.time))
    before = groups.observe(cloud.time)
    with monkeypatch.context() as patch:
        _silence(patch, "us-east-1")
        seen = groups.observe(cloud.time + 30)
        groups.set_desired(SetDesired(WEST, 1, ""), seen)
    assert {pool.name: pool.silent for pool in seen.pools} == {WEST: False, EAST: True, "sim-us-west-2": False}
    assert seen.machines == before.machines
    after = groups.observe(cloud.time + 60)
    assert not any(pool.silent for pool in after.pools)
    assert sorted(machine.pool for machine in after.machines) == [EAST, WEST]


def test_a_lost_reply_starts_nothing_twice(cloud: ScalingCloud, groups: FleetGroups) -> None:
    """The number is absolute: the same action, repeated by this or another controller, finds it done."""
    before = groups.observe(cloud.time)
    cloud.lost.add("set_desired_capacity")
    with pytest.raises(Exception, match="cannot connect"):
        groups.set_desired(SetDesired(WEST, 3, ""), before)

    groups.set_desired(SetDesired(WEST, 3, ""), before)

    assert len(groups.observe(cloud.time).machines) == 3
    assert cloud.requests == [(f"lab-{WEST}", 3)]


def test_a_group_that_has_changed_is_left_alone(cloud: ScalingCloud, groups: FleetGroups) -> None:
    """The decision followed from another number."""
    before = groups.observe(cloud.time)
    groups.set_desired(SetDesired(WEST, 3, ""), before)

    with pytest.raises(Changed, match="desired is 3, 0 was observed"):
        groups.set_desired(SetDesired(WEST, 5, ""), before)


def _raise_in_vain_and_lower(cloud: ScalingCloud, groups: FleetGroups) -> None:
    """Ask for 9 machines, of which AWS launches none, and return to the 2 that exist."""
    cloud.empty[f"lab-{WEST}"] = ""
    groups.set_desired(SetDesired(WEST, 9, ""), groups.observe(cloud.time))
    cloud.empty.clear()
    groups.set_desired(SetDesired(WEST, 2, ""), groups.observe(cloud.time))


def test_lowering_ends_no_machine(cloud: ScalingCloud, groups: FleetGroups) -> None:
    """Below the machines that run it is refused; above, they are protected first."""
    groups.set_desired(SetDesired(WEST, 2, ""), groups.observe(cloud.time))
    with pytest.raises(Changed, match="2 machines run"):
        groups.set_desired(SetDesired(WEST, 1, ""), groups.observe(cloud.time))

    _raise_in_vain_and_lower(cloud, groups)

    assert [member["ProtectedFromScaleIn"] for member in _described(WEST)["Instances"]] == [True, True]


def test_booting_machines_are_not_protected(cloud: ScalingCloud, groups: FleetGroups) -> None:
    """AWS refuses the whole call if one instance is not in service, so the group would never be lowered."""
    cloud.booting.add(f"lab-{WEST}")
    groups.set_desired(SetDesired(WEST, 2, ""), groups.observe(cloud.time))

    _raise_in_vain_and_lower(cloud, groups)

    assert [member["ProtectedFromScaleIn"] for member in _described(WEST)["Instances"]] == [False, False]


def test_a_machine_is_terminated_once(cloud: ScalingCloud, groups: FleetGroups) -> None:
    """After a decrement the group does not replace the machine; a repeated call changes nothing."""
    groups.set_desired(SetDesired(WEST, 2, ""), groups.observe(cloud.time))
    seen = groups.observe(cloud.time)
    action = Terminate(seen.machines[0].id, decrement=True, reason="")
    groups.terminate(action, seen)
    groups.terminate(action, seen)

    assert _described(WEST)["DesiredCapacity"] == len(groups.observe(cloud.time).machines) == 1


def test_a_pause_is_a_tag_of_the_groups(cloud: ScalingCloud, groups: FleetGroups) -> None:
    """Controllers on other machines read it; `resume` removes it."""
    assert groups.pause("sim", "ada") == ("sim",)
    groups.observe(cloud.time)
    assert groups.paused == {"sim": "ada"}

    groups.resume(None)
    groups.observe(cloud.time)
    assert groups.paused == {}


def test_a_group_that_is_not_deployed_cannot_be_paused(cloud: ScalingCloud, groups: FleetGroups) -> None:
    """Its tag would be missing when it is deployed; the fix is the deployment."""
    for pool in cloud.plan.pools:
        boto3.client("autoscaling", pool.region).delete_auto_scaling_group(AutoScalingGroupName=f"lab-{pool.name}")

    with pytest.raises(InputError, match="sim has no Auto Scaling groups"):
        groups.pause("sim", "ada")


def _create_subnets(pool: str) -> dict[str, str]:
    """Create the subnets of a group's zones, as the stacks do, and return their ids by zone."""
    client, zones = boto3.client("ec2", "us-west-2"), _described(pool)["AvailabilityZones"]
    vpc = client.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
    ids = {}
    for number, zone in enumerate(zones):
        tags = [{"Key": "Name", "Value": f"lab-{zone}-nodes"}, {"Key": "bedplate:fleet", "Value": "lab"}]
        subnet = client.create_subnet(
            VpcId=vpc,
            CidrBlock=f"10.0.{number}.0/24",
            AvailabilityZone=zone,
            TagSpecifications=[{"ResourceType": "subnet", "Tags": tags}],
        )
        ids[zone] = subnet["Subnet"]["SubnetId"]
    return ids


def test_a_zone_leaves_its_group_and_comes_back(cloud: ScalingCloud, groups: FleetGroups) -> None:
    """The subnets of the group change, its machines stay, and a repeated call changes nothing."""
    subnets = _create_subnets(WEST)
    scaling = boto3.client("autoscaling", "us-west-2")
    groups.set_desired(SetDesired(WEST, 4, ""), groups.observe(cloud.time))
    before = groups.observe(cloud.time)
    zones = before.pools[0].zones
    leave = SetZones(WEST, zones[1:], "")
    with pytest.raises(Changed, match="AZRebalance is not suspended"):
        groups.set_zones(leave, before)
    scaling.suspend_processes(AutoScalingGroupName=f"lab-{WEST}", ScalingProcesses=["AZRebalance"])

    groups.set_zones(leave, before)
    groups.set_zones(leave, before)

    seen = groups.observe(cloud.time)
    assert (seen.pools[0].zones, seen.pools[0].out) == (zones[1:], zones[:1])
    assert set(_described(WEST)["VPCZoneIdentifier"].split(",")) == {subnets[zone] for zone in zones[1:]}
    assert {machine.id for machine in seen.machines} == {machine.id for machine in before.machines}
    with pytest.raises(Changed, match="others were observed"):
        groups.set_zones(SetZones(WEST, zones[:1], ""), before)

    groups.set_zones(SetZones(WEST, zones, ""), seen)
    assert groups.observe(cloud.time).pools[0].out == ()


def test_a_zone_without_a_subnet_of_the_fleet_is_refused(cloud: ScalingCloud, groups: FleetGroups) -> None:
    """A subnet of another fleet, or of somebody else, is none."""
    seen = groups.observe(cloud.time)
    scaling = boto3.client("autoscaling", "us-west-2")
    scaling.suspend_processes(AutoScalingGroupName=f"lab-{WEST}", ScalingProcesses=["AZRebalance"])
    with pytest.raises(Changed, match="no subnet of its nodes"):
        groups.set_zones(SetZones(WEST, seen.pools[0].zones[1:], ""), seen)


def test_a_region_that_answers_late_does_not_stop_the_others(
    groups: FleetGroups, cloud: ScalingCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regions are read at the same time, each for at most 20 s, so a round ends before the next one begins."""
    before = groups.observe(cloud.time)
    assert module.LONGEST_ANSWER < PERIOD
    monkeypatch.setattr(module, "LONGEST_ANSWER", 5.0)
    released, show = Event(), cloud.show

    def late(group: dict[str, Any]) -> dict[str, Any]:
        if "us-east-1" in group["AutoScalingGroupName"]:
            released.wait(30)
        return show(group)

    monkeypatch.setattr(cloud, "show", late)
    begun = monotonic()

    seen = groups.observe(cloud.time)

    assert monotonic() - begun < 20
    released.set()
    assert [pool.name for pool in seen.pools if pool.silent] == [EAST]
    assert len(seen.pools) == len(before.pools)
