"""Network kinds report invalid inputs before a call, refuse to delete what is in use, and check launch templates."""

import json
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import pytest

from bedplate.rehearsal import schema
from bedplate.rehearsal.kinds import KINDS
from bedplate.rehearsal.simulation import Simulation
from bedplate.rehearsal.state import ResourceError
from bedplate.rehearsal.wire import UNKNOWN
from tests.testlab.kinds.links import vpn
from tests.testlab.kinds.network import NETWORK
from tests.testlab.kinds.refused_network import used_address
from tests.testlab.kinds.world import IMAGE, KindFixture, World, fresh

FIXTURES = {fixture.token.rpartition(":")[2]: fixture for fixture in reversed(NETWORK)}
# `aws:ec2/route` has the same short name and comes first.
FIXTURES["TransitRoute"] = next(
    fixture for fixture in NETWORK if fixture.token.startswith("aws:ec2transitgateway/route:")
)
GROUP = KINDS["aws:autoscaling/group:Group"]
TEMPLATE = KINDS["aws:ec2/launchTemplate:LaunchTemplate"]
PLACEMENT_GROUP = KINDS["aws:ec2/placementGroup:PlacementGroup"]
SPOT = {"onDemandPercentageAboveBaseCapacity": 0, "spotAllocationStrategy": "price-capacity-optimized"}

# Kind, invalid inputs that replace valid ones, and the input that the error names.
INVALID: tuple[tuple[str, dict[str, Any], str], ...] = (
    ("Subnet", {"cidrBlock": "10.20.8.0/29"}, "cidrBlock"),
    ("Subnet", {"cidrBlock": "10.0.0.0/15"}, "cidrBlock"),
    ("Subnet", {"cidrBlock": "10.20.8.1/24"}, "cidrBlock"),
    ("Subnet", {"cidrBlock": None}, "cidrBlock"),
    ("Vpc", {"cidrBlock": "10.0.0.0/8"}, "cidrBlock"),
    ("Vpc", {"cidrBlock": "10.0.0.1/16"}, "cidrBlock"),
    ("Vpc", {"cidrBlock": "169.254.0.0/16"}, "cidrBlock"),
    ("Vpc", {"cidrBlock": "224.0.0.0/16"}, "cidrBlock"),
    ("Eip", {"domain": "standard"}, "domain"),
    ("NatGateway", {"allocationId": None}, "allocationId"),
    ("NatGateway", {"subnetId": None}, "subnetId"),
    ("DefaultRouteTable", {"routes": [{"cidrBlock": "0.0.0.0/0", "gatewayId": "igw-1"}]}, "routes"),
    ("Route", {"gatewayId": None}, "routeTableId"),
    ("Route", {"destinationCidrBlock": None}, "routeTableId"),
    ("Route", {"natGatewayId": "nat-1"}, "routeTableId"),
    ("Route", {"destinationCidrBlock": "10.1.2.3/8"}, "destinationCidrBlock"),
    ("RouteTableAssociation", {"subnetId": None}, "subnetId"),
    ("VpcEndpoint", {"vpcEndpointType": "Door"}, "vpcEndpointType"),
    ("VpcEndpoint", {"serviceName": None}, "serviceName"),
    ("VpcEndpoint", {"policy": "{}"}, "policy"),
    ("VpcEndpoint", {"securityGroupIds": ["sg-1"]}, "securityGroupIds"),
    ("VpcEndpoint", {"privateDnsEnabled": True}, "privateDnsEnabled"),
    ("SecurityGroup", {"name": "sg-nodes"}, "name"),
    ("SecurityGroup", {"name": "x" * 256}, "name"),
    ("SecurityGroup", {"description": ""}, "description"),
    ("SecurityGroup", {"description": "a “quoted” word"}, "description"),
    ("SecurityGroupIngressRule", {"toPort": 70000}, "ipProtocol"),
    ("SecurityGroupIngressRule", {"toPort": 21}, "ipProtocol"),
    ("SecurityGroupIngressRule", {"ipProtocol": "ssh"}, "ipProtocol"),
    ("SecurityGroupIngressRule", {"cidrIpv4": "10.0.0.1/8"}, "cidrIpv4"),
    ("SecurityGroupIngressRule", {"referencedSecurityGroupId": "sg-1"}, "cidrIpv4"),
    ("SecurityGroupIngressRule", {"cidrIpv4": None}, "cidrIpv4"),
    ("SecurityGroupIngressRule", {"toPort": None}, "ipProtocol"),
    ("SecurityGroupIngressRule", {"ipProtocol": "-1", "fromPort": 0, "toPort": 0}, "fromPort"),
    ("SecurityGroupIngressRule", {"description": "x" * 256}, "description"),
    ("CustomerGateway", {"bgpAsn": "7224"}, "bgpAsn"),
    ("CustomerGateway", {"bgpAsn": "4294967295"}, "bgpAsn"),
    ("CustomerGateway", {"bgpAsnExtended": "4200000000"}, "bgpAsn"),
    ("CustomerGateway", {"ipAddress": "8.20.30"}, "ipAddress"),
    ("CustomerGateway", {"ipAddress": None}, "ipAddress"),
    ("CustomerGateway", {"type": "ipsec.2"}, "type"),
    ("VpnConnection", {"tunnel1InsideCidr": "169.254.0.0/30"}, "tunnel1InsideCidr"),
    ("VpnConnection", {"tunnel1InsideCidr": "10.0.0.0/30"}, "tunnel1InsideCidr"),
    ("VpnConnection", {"tunnel2InsideCidr": "169.254.20.0/29"}, "tunnel2InsideCidr"),
    ("VpnConnection", {"tunnel1DpdTimeoutSeconds": 10}, "tunnel1DpdTimeoutSeconds"),
    ("VpnConnection", {"tunnel2IkeVersions": ["ikev3"]}, "tunnel2IkeVersions"),
    (
        "VpnConnection",
        {"tunnel1LogOptions": {"cloudwatchLogOptions": {"logEnabled": True}}},
        "tunnel1LogOptions.cloudwatchLogOptions.logGroupArn",
    ),
    (
        "VpnConnection",
        {"tunnel2LogOptions": {"cloudwatchLogOptions": {"logOutputFormat": "xml"}}},
        "tunnel2LogOptions.cloudwatchLogOptions.logOutputFormat",
    ),
    ("VpnConnection", {"transitGatewayId": "tgw-1"}, "transitGatewayId"),
    ("FlowLog", {"maxAggregationInterval": 30}, "maxAggregationInterval"),
    ("FlowLog", {"vpcId": None}, "vpcId"),
    ("FlowLog", {"iamRoleArn": None}, "iamRoleArn"),
    ("FlowLog", {"logDestination": None}, "logDestination"),
    ("FlowLog", {"trafficType": None}, "trafficType"),
    ("TransitGateway", {"amazonSideAsn": 65535}, "amazonSideAsn"),
    ("TransitGateway", {"dnsSupport": True}, "dnsSupport"),
    ("VpcAttachment", {"applianceModeSupport": "on"}, "applianceModeSupport"),
    ("VpcAttachment", {"subnetIds": []}, "subnetIds"),
    ("TransitRoute", {"destinationCidrBlock": "10.65.0.1/16"}, "destinationCidrBlock"),
    ("TransitRoute", {"transitGatewayAttachmentId": None}, "transitGatewayAttachmentId"),
    ("ResolverEndpoint", {"direction": "BOTH"}, "direction"),
    ("ResolverEndpoint", {"name": "2026"}, "name"),
    ("ResolverEndpoint", {"ipAddresses": [{"subnetId": "subnet-1"}]}, "ipAddresses"),
    ("ResolverEndpoint", {"protocols": ["Do54"]}, "protocols"),
    ("ResolverRule", {"ruleType": "PASS"}, "ruleType"),
    ("ResolverRule", {"targetIps": []}, "targetIps"),
    ("ResolverRule", {"targetIps": [{"ip": f"10.0.0.{host}"} for host in range(1, 8)]}, "targetIps"),
    ("ResolverRule", {"resolverEndpointId": None}, "resolverEndpointId"),
    ("ResolverRule", {"targetIps": [{"ip": "fd00::2"}]}, "targetIps[0].ip"),
    ("ResolverRule", {"targetIps": [{"ip": "10.0.0.2", "port": 0}]}, "targetIps.port"),
    ("ResolverRuleAssociation", {"name": "x" * 65}, "name"),
)


@pytest.fixture(scope="module")
def valid_inputs(simulation: Simulation) -> dict[str, dict[str, Any]]:
    """Return valid inputs of each kind, created once per file."""
    return {name: _valid_inputs(fixture, World(simulation.region("us-west-2"))) for name, fixture in FIXTURES.items()}


def _valid_inputs(fixture: KindFixture, world: World) -> dict[str, Any]:
    return {**KINDS[fixture.token].defaults, **fixture.inputs_in(world)}


@pytest.mark.parametrize(("name", "changes", "key"), INVALID, ids=lambda value: str(value)[:60])
def test_an_invalid_input_is_reported(
    name: str,
    changes: dict[str, Any],
    key: str,
    valid_inputs: dict[str, dict[str, Any]],
    simulation: Simulation,
) -> None:
    """The error names the invalid input; the same inputs without it are valid."""
    kind, aws = KINDS[FIXTURES[name].token], simulation.region("us-west-2")
    valid = valid_inputs[name]

    errors = list(kind.complaints(aws, {**valid, **changes}))

    assert key in {error.key for error in errors}
    assert all(error.reason for error in errors)
    assert list(kind.complaints(aws, valid)) == []


def create_interface(world: World) -> None:
    """Create an interface in the subnet and security group."""
    assert world.interface


def refer_to_group(world: World) -> None:
    """Create a rule in another group that refers to the group."""
    pairs = [{"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": world.group}]}]
    world.aws.call("ec2", "authorize_security_group_ingress", GroupId=world.other_group, IpPermissions=pairs)


def use_address(world: World) -> None:
    """Associate the address with an interface."""
    used_address(world)


def create_connection(world: World) -> None:
    """Create a VPN connection of the customer gateway."""
    KINDS["aws:ec2/vpnConnection:VpnConnection"].create(world.aws, vpn(world))


# Type, the part of the world to delete, what uses it, and the error code of AWS.
IN_USE: tuple[tuple[str, str, Callable[[World], None], str], ...] = (
    ("aws:ec2/subnet:Subnet", "subnet", create_interface, "DependencyViolation"),
    ("aws:ec2/securityGroup:SecurityGroup", "group", create_interface, "DependencyViolation"),
    ("aws:ec2/securityGroup:SecurityGroup", "group", refer_to_group, "DependencyViolation"),
    ("aws:ec2/eip:Eip", "address", use_address, "InvalidIPAddress.InUse"),
    ("aws:ec2/customerGateway:CustomerGateway", "customer_gateway", create_connection, "IncorrectState"),
)


@pytest.mark.parametrize(("token", "part", "use", "code"), IN_USE)
def test_a_resource_in_use_cannot_be_deleted(
    token: str, part: str, use: Callable[[World], None], code: str, world: World
) -> None:
    """AWS refuses to delete a resource that another one depends on, and deletes it otherwise."""
    kind, unused, ident = KINDS[token], World(world.aws), getattr(world, part)
    use(world)

    with pytest.raises(ResourceError) as refused:
        kind.delete(world.aws, ident, schema.outputs(token))

    assert refused.value.code == code
    kind.delete(unused.aws, getattr(unused, part), schema.outputs(token))


def test_interfaces_of_terminated_instances_block_no_deletion(world: World) -> None:
    """AWS deletes the interface of a terminated instance. moto keeps it, and it must not block its subnet."""
    image = world.aws.call("ec2", "describe_images")["Images"][0]["ImageId"]
    placement = {"SubnetId": world.subnet, "SecurityGroupIds": [world.group]}
    run = world.aws.call("ec2", "run_instances", ImageId=image, MinCount=1, MaxCount=1, **placement)
    world.aws.call("ec2", "terminate_instances", InstanceIds=[run["Instances"][0]["InstanceId"]])

    for token, ident in (
        ("aws:ec2/securityGroup:SecurityGroup", world.group),
        ("aws:ec2/subnet:Subnet", world.subnet),
    ):
        KINDS[token].delete(world.aws, ident, schema.outputs(token))
        with pytest.raises(ResourceError):
            KINDS[token].read(world.aws, ident, {})


def test_a_vpc_has_one_endpoint_with_the_private_name_of_a_service(world: World) -> None:
    """A second one is refused, unless it has no private DNS name or another service."""
    kind = KINDS["aws:ec2/vpcEndpoint:VpcEndpoint"]
    inputs = {"vpcId": world.vpc, "vpcEndpointType": "Interface", "serviceName": world.service("ssm")}
    kind.create(world.aws, {**inputs, "privateDnsEnabled": True})

    with pytest.raises(ResourceError, match="conflicting DNS domain") as refused:
        kind.create(world.aws, {**inputs, "privateDnsEnabled": True})

    assert (refused.value.code, refused.value.key) == ("InvalidParameter", "privateDnsEnabled")
    kind.create(world.aws, {**inputs, "privateDnsEnabled": False})
    kind.create(world.aws, {**inputs, "serviceName": world.service("sts"), "privateDnsEnabled": True})


def test_an_existing_interface_outlives_the_instance_that_used_it(world: World) -> None:
    """After the instance it is unused, still blocks its subnet, and can be deleted."""
    image = world.aws.call("ec2", "describe_images")["Images"][0]["ImageId"]
    interface, token = KINDS["aws:ec2/networkInterface:NetworkInterface"], "aws:ec2/subnet:Subnet"
    ident = interface.create(world.aws, {"subnetId": world.subnet})
    interfaces = [{"DeviceIndex": 0, "NetworkInterfaceId": ident}]
    run = world.aws.call("ec2", "run_instances", ImageId=image, MinCount=1, MaxCount=1, NetworkInterfaces=interfaces)
    with pytest.raises(ResourceError):
        interface.delete(world.aws, ident, {})

    world.aws.call("ec2", "terminate_instances", InstanceIds=[run["Instances"][0]["InstanceId"]])

    with pytest.raises(ResourceError, match="dependencies"):
        KINDS[token].delete(world.aws, world.subnet, schema.outputs(token))
    interface.delete(world.aws, ident, {})
    KINDS[token].delete(world.aws, world.subnet, schema.outputs(token))


def _interface_block(card: int, device: int, kind: str = "efa-only") -> dict[str, Any]:
    return {"networkCardIndex": card, "deviceIndex": device, "interfaceType": kind}


def _create_group(world: World, types: tuple[str, ...], launch: dict[str, Any], **group: Any) -> str:  # noqa: ANN401
    """Create a template and a group from it in the first subnet; return the name of the group."""
    inputs = {"name": fresh("start"), "imageId": IMAGE, "instanceType": types[0], **launch}
    ident = TEMPLATE.create(world.aws, inputs)
    single = {"launchTemplate": {"id": ident, "version": "1"}}
    mixed = {
        "mixedInstancesPolicy": {
            "instancesDistribution": group.pop("spread", {}),
            "launchTemplate": {
                "launchTemplateSpecification": {"launchTemplateId": ident, "version": "1"},
                "overrides": [{"instanceType": name} for name in types],
            },
        }
    }
    settings = {"name": fresh("pool"), "minSize": 0, "maxSize": 4, "vpcZoneIdentifiers": [world.subnet], **group}
    return GROUP.create(world.aws, {**GROUP.defaults, **settings, **(single if len(types) == 1 else mixed)})


def _create_placement_group(world: World) -> str:
    return PLACEMENT_GROUP.create(world.aws, {"name": fresh("near"), "strategy": "cluster"})


@pytest.mark.parametrize(
    ("types", "interfaces", "message"),
    [
        (
            ("p4d.24xlarge",),
            [
                _interface_block(0, 0, "interface"),
                _interface_block(0, 1),
                _interface_block(1, 0),
                _interface_block(2, 0),
                _interface_block(3, 0),
            ],
            "",
        ),
        (("g5.12xlarge", "g5.24xlarge"), [_interface_block(0, 0, "efa")], ""),
        (
            ("p4d.24xlarge",),
            [_interface_block(0, 0, "interface"), _interface_block(4, 0)],
            "p4d.24xlarge has no network card 4",
        ),
        (
            ("p5.48xlarge",),
            [_interface_block(0, 0, "interface"), _interface_block(1, 2)],
            "allows 2 interfaces, with device indexes from 0 to 1",
        ),
        (("c6in.large",), [_interface_block(0, n, "interface") for n in range(4)], "allows 3 interfaces"),
        (("m7i.large",), [_interface_block(0, 0, "efa")], "allows no interface of type efa"),
        (
            ("g5.12xlarge", "g5.xlarge"),
            [_interface_block(0, 0, "efa")],
            "the network card 0 of g5.xlarge allows no interface",
        ),
        (
            ("g5.12xlarge",),
            [_interface_block(0, 0, "efa"), _interface_block(0, 1)],
            "g5.12xlarge allows 1 EFA interfaces, not 2",
        ),
    ],
)
def test_interfaces_must_fit_every_type_of_a_group(
    types: tuple[str, ...], interfaces: list[dict[str, Any]], message: str, world: World
) -> None:
    """EC2 refuses a missing card, too many interfaces on a card, and EFA on a type without it."""
    launch = {"networkInterfaces": interfaces}

    if message:
        with pytest.raises(ResourceError, match=message):
            _create_group(world, types, launch)
    else:
        assert _create_group(world, types, launch)


@pytest.mark.parametrize(
    ("kind", "zones", "message"),
    [
        ("c7i.large", "a", ""),
        ("t3.large", "a", "t3.large does not support placement strategy cluster"),
        ("c7i.large", "ab", "cannot span us-west-2a, us-west-2b"),
    ],
)
def test_instances_must_fit_their_placement_group(kind: str, zones: str, message: str, world: World) -> None:
    """A cluster has one zone and no burstable type."""
    subnets = [world.subnet, world.other_subnet][: len(zones)]
    launch = {"placement": {"groupName": _create_placement_group(world)}}

    if message:
        with pytest.raises(ResourceError, match=message):
            _create_group(world, (kind,), launch, vpcZoneIdentifiers=subnets)
    else:
        assert _create_group(world, (kind,), launch, vpcZoneIdentifiers=subnets)


def test_a_capacity_block_excludes_a_placement_group(world: World) -> None:
    """A template has one or the other."""
    launch = {"instanceMarketOptions": {"marketType": "capacity-block"}}

    (error,) = TEMPLATE.complaints(world.aws, {"placement": {"groupName": "near"}, **launch})

    assert "conflicts with a capacity block" in error.reason
    assert _create_group(world, ("p4d.24xlarge",), launch)


def test_a_capacity_reservation_excludes_a_placement_group(world: World) -> None:
    """EC2 finds no capacity unless the reservation was created in the group; the rehearsal creates none."""
    target = {"capacityReservationId": "cr-0123456789abcdef0"}
    launch = {"capacityReservationSpecification": {"capacityReservationTarget": target}}

    (error,) = TEMPLATE.complaints(world.aws, {"placement": {"groupName": "near"}, **launch})

    assert "which is not in placement group" in error.reason
    assert _create_group(world, ("c7i.large",), launch)


def test_only_spot_launches_may_tag_spot_requests(world: World) -> None:
    """EC2 refuses an on-demand launch that tags a spot request."""
    launch = {"tagSpecifications": [{"resourceType": "spot-instances-request", "tags": {"owner": "lab"}}]}
    types = ("c7i.large", "m7i.large")

    assert _create_group(world, types, launch, spread=SPOT)
    assert _create_group(world, ("c7i.large",), {**launch, "instanceMarketOptions": {"marketType": "spot"}})
    with pytest.raises(ResourceError, match="which on-demand launches do not have"):
        _create_group(world, types, launch, spread={**SPOT, "onDemandPercentageAboveBaseCapacity": 100})
    with pytest.raises(ResourceError, match="which on-demand launches do not have"):
        _create_group(world, ("c7i.large",), launch)


AUTO_SCALING = "autoscaling.amazonaws.com/AWSServiceRoleForAutoScaling"
EC2_SPOT = "spot.amazonaws.com/AWSServiceRoleForEC2Spot"
TYPES = ("c7i.large", "m7i.large")


def _launch_with_key(world: World, roles: tuple[str, ...], *, of_image: bool, **group: Any) -> str:  # noqa: ANN401  inputs
    """Create a group whose image or volume has a key; the key's policy lets these roles create grants."""
    grant = {"Effect": "Allow", "Principal": "*", "Action": "kms:CreateGrant", "Resource": "*"}
    root = {"Effect": "Allow", "Principal": {"AWS": f"arn:aws:iam::{world.aws.account}:root"}, "Action": "kms:*"}
    arns = [f"arn:aws:iam::{world.aws.account}:role/aws-service-role/{role}" for role in roles]
    by_name = {**grant, "Condition": {"StringEquals": {"aws:PrincipalArn": arns}}}
    policy = {"Version": "2012-10-17", "Statement": [{**root, "Resource": "*"}, by_name]}
    key = world.aws.call("kms", "create_key", Policy=json.dumps(policy))["KeyMetadata"]["Arn"]
    disk = {"deviceName": "/dev/sdf", "ebs": {"encrypted": "true", "kmsKeyId": key, "volumeSize": 8}}
    # Other tests use the same simulation.
    with patch.object(world.aws.simulation, "image_keys", {IMAGE: key} if of_image else {}):
        return _create_group(world, TYPES, {} if of_image else {"blockDeviceMappings": [disk]}, **group)


@pytest.mark.parametrize("of_image", [False, True])
def test_the_key_of_a_launch_admits_the_role_of_its_market(of_image: bool, world: World) -> None:  # noqa: FBT001
    """Service-linked roles have no permission for keys; the delegation to IAM in a key's policy is not enough."""
    on_demand = {**SPOT, "onDemandPercentageAboveBaseCapacity": 100}

    assert _launch_with_key(world, (AUTO_SCALING,), of_image=of_image, spread=on_demand)
    assert _launch_with_key(world, (AUTO_SCALING, EC2_SPOT), of_image=of_image, spread=SPOT)
    with pytest.raises(ResourceError, match="does not let AWSServiceRoleForEC2Spot create grants"):
        _launch_with_key(world, (AUTO_SCALING,), of_image=of_image, spread=SPOT)
    with pytest.raises(ResourceError, match="does not let AWSServiceRoleForAutoScaling create grants"):
        _launch_with_key(world, (), of_image=of_image, spread=on_demand)


def test_a_placement_group_that_is_unknown_in_a_preview_is_not_checked(world: World) -> None:
    """A placement group of the same program has a name only once it exists."""
    block = {"instanceMarketOptions": {"marketType": "capacity-block"}}

    assert not list(TEMPLATE.complaints(world.aws, {"placement": {"groupName": UNKNOWN}, **block}))
    assert list(TEMPLATE.complaints(world.aws, {"placement": {"groupName": "near"}, **block}))


def _interface_group(world: World, changes: dict[str, Any]) -> dict[str, Any]:
    """Return the inputs of a group whose template has an existing interface, with some changes."""
    name = fresh("gateway")
    template = {
        "name": name,
        "imageId": IMAGE,
        "instanceType": "c6in.large",
        "networkInterfaces": [{"deviceIndex": 0, "networkInterfaceId": world.interface}],
    }
    ident = TEMPLATE.create(world.aws, template)
    sizes = {"name": name, "minSize": 1, "maxSize": 1, "availabilityZones": ["us-west-2a"]}
    return {**GROUP.defaults, **sizes, "launchTemplate": {"id": ident, "version": "1"}, **changes}


def test_a_group_of_one_in_the_zone_of_its_interface_is_created(world: World) -> None:
    """The interface has a subnet, so the group names only the zone."""
    inputs = _interface_group(world, {})

    assert GROUP.create(world.aws, inputs) == inputs["name"]


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"availabilityZones": ["us-west-2b"]}, "availabilityZones"),
        ({"availabilityZones": None, "vpcZoneIdentifiers": ["subnet"]}, "vpcZoneIdentifiers"),
        ({"maxSize": 2}, "maxSize"),
    ],
)
def test_a_group_that_cannot_use_its_interface_is_refused(changes: dict[str, Any], key: str, world: World) -> None:
    """Another zone, subnets, or a second instance: EC2 would launch nothing."""
    inputs = _interface_group(world, changes)
    if inputs.get("vpcZoneIdentifiers"):
        inputs["vpcZoneIdentifiers"] = [world.subnet]

    with pytest.raises(ResourceError) as refused:
        GROUP.create(world.aws, inputs)

    assert refused.value.key == key
