"""What goes wrong in the simulated AWS, call by call: what is sent again, what is found again, and what is given up."""

from collections.abc import Callable, Iterator

import pulumi
import pulumi_aws as aws
import pytest
from pulumi import ResourceOptions

from bedplate.rehearsal.refusal import Refusal
from bedplate.rehearsal.simulation import Simulation, running
from bedplate.rehearsal.stack import Run, World, run
from bedplate.rehearsal.weather import FAIR, Fault, Trouble, Weather
from stacks.reference import output_of
from tests.support.inventory import inventory
from tests.support.programs import ACCOUNT, changes, parameter, stack, subnet, vpc
from tests.support.services import IMAGE

TAGS = {"Name": "lab"}


@pytest.fixture
def world() -> Iterator[World]:
    """Return a world of its own for each test: its whole content is counted."""
    with running(ACCOUNT) as simulation:
        yield World(simulation)


def _services() -> None:
    outer = vpc("outer", tags=TAGS)
    subnet("inner", outer.id, "10.1.0.0/24")
    aws.ec2.InternetGateway("way-out", vpc_id=outer.id, tags=TAGS)
    aws.s3.Bucket("data", bucket="lab-data")
    aws.sns.Topic("alarms", name="alarms")
    parameter("note")


def _under(world: World, weather: Weather, program: Callable[[], None]) -> Run:
    world.simulation.climate.weather = weather
    return run(stack(program), world)


# Where the program makes things: its region, and services that have none.
_PLACES = frozenset({"us-west-2", "aws"})


def _content(weather: Weather) -> dict[str, int]:
    with running(ACCOUNT) as simulation:
        done = _under(World(simulation), weather, _services)
        assert not done.failures
        # moto sets up other regions' own networks anew when simulations before this one have been there.
        return {what: count for what, count in inventory(ACCOUNT).items() if what.split()[0] in _PLACES}


@pytest.mark.parametrize("trouble", [Trouble.THROTTLED, Trouble.ERRORS, Trouble.LOST_REPLIES])
def test_what_passes_leaves_no_trace(trouble: Trouble) -> None:
    """Eight refusals in a row, or a lost reply, on each call: all is made, once, as in fair weather."""
    assert _content(Weather((Fault(trouble),))) == _content(FAIR)


def test_a_second_one_would_be_counted(world: World) -> None:
    """The count that the tests here stand on sees one VPC too many."""
    _under(world, FAIR, _services)
    before = inventory(ACCOUNT)

    world.simulation.call("ec2", "us-west-2", "create_vpc", {"CidrBlock": "10.1.0.0/16"})

    assert inventory(ACCOUNT) != before


@pytest.mark.parametrize(
    ("service", "operation", "throttled", "failed"),
    [
        ("ec2", "describe_vpcs", "RequestLimitExceeded", "InternalError"),
        ("s3", "list_buckets", "SlowDown", "InternalError"),
        ("iam", "list_roles", "Throttling", "ServiceFailure"),
        ("ssm", "describe_parameters", "ThrottlingException", "InternalServerError"),
    ],
)
def test_patience_ends(world: World, service: str, operation: str, throttled: str, failed: str) -> None:
    """After 25 attempts a call is given up, with the code by which its service refuses it."""
    codes = []

    for trouble in (Trouble.THROTTLED, Trouble.ERRORS):
        world.simulation.climate.weather = Weather((Fault(trouble, times=25),))
        with pytest.raises(Refusal, match="25 attempts") as told:
            world.simulation.call(service, "us-west-2", operation, {})
        codes.append(told.value.code)

    assert codes == [throttled, failed]


def test_what_nothing_tells_from_others_is_not_made_twice(world: World) -> None:
    """A VPC without a tag has no name and no token: when its reply is lost, it is told and not sent again."""
    done = _under(world, Weather((Fault(Trouble.LOST_REPLIES),)), lambda: _quiet(vpc("outer")))

    told = [(one.code, "ec2.create_vpc" in one.message) for one in done.failures]
    found = world.simulation.call("ec2", "us-west-2", "describe_vpcs", {})["Vpcs"]
    assert told == [("RequestError", True)]
    assert [one["CidrBlock"] for one in found if not one["IsDefault"]] == ["10.1.0.0/16"]


def _quiet(_: object) -> None:
    pass


def _two_regions() -> None:
    for region in ("us-west-2", "us-east-1"):
        provider = aws.Provider(region, region=region)
        parameter(region, opts=ResourceOptions(provider=provider))


def test_a_silent_region_is_told_once(world: World) -> None:
    """Its provider fails, in one line that names it; what needs it is not tried, what does not is made."""
    done = _under(world, Weather((Fault(Trouble.SILENT, "us-east-1"),)), _two_regions)

    told = [(one.urn.rpartition("::")[2], one.code, one.skipped) for one in done.failures]
    assert told == [("us-east-1", "RequestError", False), ("us-east-1", "Skipped", True)]
    assert "us-east-1" in done.failures[0].message
    assert changes(done) == {"us-west-2": "create"}


def test_what_was_missing_is_made_afterwards(world: World) -> None:
    """When the region answers again a second run makes the rest, and a third changes nothing."""
    _under(world, Weather((Fault(Trouble.SILENT, "us-east-1"),)), _two_regions)
    world.simulation.clear_up()

    second, third = (run(stack(_two_regions), world) for _ in range(2))

    assert changes(second) == {"us-east-1": "create"}
    assert changes(third) == {}


def _interfaces() -> None:
    outer = vpc("outer")
    for zone in ("us-west-2a", "us-west-2b"):
        block = f"10.1.{ord(zone[-1])}.0/24"
        inner = aws.ec2.Subnet(zone, vpc_id=outer.id, cidr_block=block, availability_zone=zone)
        aws.ec2.NetworkInterface(f"{zone}-card", subnet_id=inner.id)


@pytest.mark.parametrize(("place", "failed"), [("us-west-2", 2), ("us-west-2b", 1), ("us-east-1", 0)])
def test_addresses_run_out_where_it_is_said(world: World, place: str, failed: int) -> None:
    """In a region or a zone, with EC2's code, and nowhere else; subnets themselves take no address."""
    done = _under(world, Weather((Fault(Trouble.NO_ADDRESSES, place),)), _interfaces)

    assert [one.code for one in done.failures] == ["InsufficientFreeAddressesInSubnet"] * failed


def _group() -> None:
    inner = subnet("inner", vpc("outer").id, "10.1.0.0/24")
    template = aws.ec2.LaunchTemplate("nodes", image_id=IMAGE, instance_type="m7i.large")
    aws.autoscaling.Group(
        "nodes",
        name="nodes",
        min_size=2,
        max_size=4,
        vpc_zone_identifiers=[inner.id],
        launch_template={"id": template.id, "version": "1"},
        wait_for_capacity_timeout="0",
    )


def _machines(simulation: Simulation) -> int:
    (group,) = simulation.call("autoscaling", "us-west-2", "describe_auto_scaling_groups", {})["AutoScalingGroups"]
    return len(group["Instances"])


@pytest.mark.parametrize(
    ("trouble", "place", "code"),
    [
        (Trouble.NO_CAPACITY, "nodes", "InsufficientInstanceCapacity"),
        (Trouble.NO_QUOTA, "nodes", "VcpuLimitExceeded"),
        (Trouble.SPOT_LIMIT, "nodes", "MaxSpotInstanceCountExceeded"),
        (Trouble.RESERVATION_FULL, "nodes", "ReservationCapacityExceeded"),
        (Trouble.RESERVATION_ENDED, "nodes", "InvalidCapacityReservationId.NotFound"),
        (Trouble.NO_ADDRESSES, "us-west-2", "InsufficientFreeAddressesInSubnet"),
    ],
)
def test_a_group_without_machines_is_made_all_the_same(world: World, trouble: Trouble, place: str, code: str) -> None:
    """Auto Scaling takes the group, tells of the failed launch in its activities, and starts the machines later."""
    done = _under(world, Weather((Fault(trouble, place),)), _group)

    activities = {"AutoScalingGroupName": "nodes"}
    told = world.simulation.call("autoscaling", "us-west-2", "describe_scaling_activities", activities)["Activities"]
    (short,) = world.simulation.climate.shortages.values()
    machines = _machines(world.simulation)
    world.simulation.clear_up()
    assert not done.failures
    assert [one["StatusCode"] for one in told] == ["Failed"]
    assert (short.group, short.code, short.missing, machines) == ("nodes", code, 2, 0)
    assert _machines(world.simulation) == 2
    assert changes(run(stack(_group), world)) == {}


def test_a_group_elsewhere_gets_its_machines(world: World) -> None:
    """Weather over one group is not over another."""
    done = _under(world, Weather((Fault(Trouble.NO_CAPACITY, "others"),)), _group)

    assert not done.failures
    assert not world.simulation.climate.shortages
    assert _machines(world.simulation) == 2


def test_a_stack_that_is_not_there_stops_only_what_reads_it(world: World) -> None:
    """A program that reads the exports of a stack of which nothing was made goes on with the rest."""

    def reader() -> None:
        found = pulumi.StackReference("organization/lab/lost").require_output("name")
        parameter("read", found)
        parameter("other")

    done = _under(world, FAIR, reader)

    assert [one.skipped for one in done.failures] == [False, True]
    assert changes(done) == {"other": "create"}


def test_an_export_that_is_not_there_yet_is_told_in_words(world: World) -> None:
    """A stack made in part exports in part: who reads the rest says which stack and which export, and what to do."""
    made = stack(lambda: pulumi.export("vpc_id", "vpc-1"), name="lab.west")

    def reader() -> None:
        west = pulumi.StackReference("organization/lab/lab.west")
        parameter("there", output_of(west, "vpc_id"))
        parameter("absent", output_of(west, "zone_id"))

    done = [run(one, world) for one in (made, stack(reader))][-1]

    told = [(one.code, one.message) for one in done.failures]
    assert told == [("InputError", "lab.west does not export zone_id yet\nmake lab.west whole first")]
    assert changes(done) == {"there": "create"}
