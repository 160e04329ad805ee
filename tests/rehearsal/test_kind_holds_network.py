"""What AWS keeps of networks because something else depends on it, and lets go once nothing does."""

from collections.abc import Callable

import pytest

from bedplate.rehearsal import schema
from bedplate.rehearsal.kinds import KINDS
from bedplate.rehearsal.refusal import Refusal
from tests.support.defects_network import used_address
from tests.support.specimens_links import vpn
from tests.support.world import World


def holds_interface(world: World) -> None:
    """Put an interface into the world's subnet and group."""
    assert world.interface


def names_group(world: World) -> None:
    """Let a rule of another group name the world's group."""
    pairs = [{"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": world.group}]}]
    world.aws.call("ec2", "authorize_security_group_ingress", GroupId=world.other_group, IpPermissions=pairs)


def takes_address(world: World) -> None:
    """Let an interface take the world's address."""
    used_address(world)


def holds_connection(world: World) -> None:
    """Make a VPN connection of the world's customer gateway."""
    KINDS["aws:ec2/vpnConnection:VpnConnection"].create(world.aws, vpn(world))


# Kind, the part of the world that is to go, what holds it, and AWS's code.
HELD: tuple[tuple[str, str, Callable[[World], None], str], ...] = (
    ("aws:ec2/subnet:Subnet", "subnet", holds_interface, "DependencyViolation"),
    ("aws:ec2/securityGroup:SecurityGroup", "group", holds_interface, "DependencyViolation"),
    ("aws:ec2/securityGroup:SecurityGroup", "group", names_group, "DependencyViolation"),
    ("aws:ec2/eip:Eip", "address", takes_address, "InvalidIPAddress.InUse"),
    ("aws:ec2/customerGateway:CustomerGateway", "customer_gateway", holds_connection, "IncorrectState"),
)


@pytest.mark.parametrize(("token", "part", "hold", "code"), HELD)
def test_what_is_in_use_is_not_deleted(
    token: str, part: str, hold: Callable[[World], None], code: str, world: World
) -> None:
    """AWS keeps what something else depends on, and lets it go once nothing does."""
    kind, free, ident = KINDS[token], World(world.aws), getattr(world, part)
    hold(world)

    with pytest.raises(Refusal) as refused:
        kind.delete(world.aws, ident, schema.outputs(token))

    assert refused.value.code == code
    kind.delete(free.aws, getattr(free, part), schema.outputs(token))


def test_interfaces_of_terminated_instances_hold_nothing(world: World) -> None:
    """AWS deletes a terminated instance's interface; moto keeps it, and it must not keep its subnet."""
    image = world.aws.call("ec2", "describe_images")["Images"][0]["ImageId"]
    placed = {"SubnetId": world.subnet, "SecurityGroupIds": [world.group]}
    run = world.aws.call("ec2", "run_instances", ImageId=image, MinCount=1, MaxCount=1, **placed)
    world.aws.call("ec2", "terminate_instances", InstanceIds=[run["Instances"][0]["InstanceId"]])

    for token, ident in (
        ("aws:ec2/securityGroup:SecurityGroup", world.group),
        ("aws:ec2/subnet:Subnet", world.subnet),
    ):
        KINDS[token].delete(world.aws, ident, schema.outputs(token))
        with pytest.raises(Refusal):
            KINDS[token].read(world.aws, ident, {})


def test_one_endpoint_of_a_network_answers_to_a_services_name(world: World) -> None:
    """A second one is refused, unless it leaves the name alone or serves something else."""
    kind = KINDS["aws:ec2/vpcEndpoint:VpcEndpoint"]
    asked = {"vpcId": world.vpc, "vpcEndpointType": "Interface", "serviceName": world.service("ssm")}
    kind.create(world.aws, {**asked, "privateDnsEnabled": True})

    with pytest.raises(Refusal, match="conflicting DNS domain") as refused:
        kind.create(world.aws, {**asked, "privateDnsEnabled": True})

    assert (refused.value.code, refused.value.key) == ("InvalidParameter", "privateDnsEnabled")
    kind.create(world.aws, {**asked, "privateDnsEnabled": False})
    kind.create(world.aws, {**asked, "serviceName": world.service("sts"), "privateDnsEnabled": True})


def test_an_interface_of_its_own_outlives_the_machine_that_took_it_over(world: World) -> None:
    """It is free again when the machine ends, holds its subnet as before, and can be deleted."""
    image = world.aws.call("ec2", "describe_images")["Images"][0]["ImageId"]
    interface, token = KINDS["aws:ec2/networkInterface:NetworkInterface"], "aws:ec2/subnet:Subnet"
    ident = interface.create(world.aws, {"subnetId": world.subnet})
    taken = [{"DeviceIndex": 0, "NetworkInterfaceId": ident}]
    run = world.aws.call("ec2", "run_instances", ImageId=image, MinCount=1, MaxCount=1, NetworkInterfaces=taken)
    with pytest.raises(Refusal):
        interface.delete(world.aws, ident, {})

    world.aws.call("ec2", "terminate_instances", InstanceIds=[run["Instances"][0]["InstanceId"]])

    with pytest.raises(Refusal, match="dependencies"):
        KINDS[token].delete(world.aws, world.subnet, schema.outputs(token))
    interface.delete(world.aws, ident, {})
    KINDS[token].delete(world.aws, world.subnet, schema.outputs(token))
