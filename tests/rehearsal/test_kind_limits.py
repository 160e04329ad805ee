"""Limits of the network's kinds that moto does not know: each draws a complaint where a specimen draws none."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from bedplate.rehearsal import schema
from bedplate.rehearsal.kinds import KINDS
from bedplate.rehearsal.simulation import Simulation, running
from bedplate.rehearsal.state import Refusal
from bedplate.rehearsal.wire import UNKNOWN
from tests.testlab.kinds.links import ssh_from, vpn
from tests.testlab.kinds.network import NETWORK
from tests.testlab.kinds.refused_network import used_address
from tests.testlab.kinds.world import IMAGE, Specimen, World, fresh

SPECIMENS = {each.token.rpartition(":")[2]: each for each in reversed(NETWORK)}
# Its namesake in another package comes first.
SPECIMENS["TransitRoute"] = next(each for each in NETWORK if each.token.startswith("aws:ec2transitgateway/route:"))
ALL_OPEN = {"protocol": "-1", "fromPort": 0, "toPort": 0, "cidrBlocks": ["0.0.0.0/0"]}

# Kind, what spoils the specimen's inputs, and the input that the complaint names.
DEFECTS: tuple[tuple[str, dict[str, Any], str], ...] = (
    ("Subnet", {"cidrBlock": "10.20.8.0/29"}, "cidrBlock"),
    ("Subnet", {"cidrBlock": "10.0.0.0/15"}, "cidrBlock"),
    ("Subnet", {"cidrBlock": "10.20.8.1/24"}, "cidrBlock"),
    ("Subnet", {"cidrBlock": None}, "cidrBlock"),
    ("Subnet", {"enableDns64": True}, "enableDns64"),
    ("Subnet", {"availabilityZoneId": "usw2-az1"}, "availabilityZone"),
    ("Vpc", {"cidrBlock": "10.0.0.0/8"}, "cidrBlock"),
    ("Vpc", {"cidrBlock": "10.0.0.1/16"}, "cidrBlock"),
    ("Vpc", {"cidrBlock": "169.254.0.0/16"}, "cidrBlock"),
    ("Vpc", {"cidrBlock": "224.0.0.0/16"}, "cidrBlock"),
    ("Vpc", {"instanceTenancy": "shared"}, "instanceTenancy"),
    ("Eip", {"domain": "standard"}, "domain"),
    ("Eip", {"instance": "i-1", "networkInterface": "eni-1"}, "instance"),
    ("NatGateway", {"connectivityType": "private"}, "allocationId"),
    ("NatGateway", {"allocationId": None}, "allocationId"),
    ("NatGateway", {"subnetId": None}, "subnetId"),
    ("NatGateway", {"connectivityType": "secret"}, "connectivityType"),
    ("RouteTable", {"routes": [{"cidrBlock": "0.0.0.0/0"}]}, "routes[0]"),
    ("RouteTable", {"routes": [{"gatewayId": "igw-1"}]}, "routes[0]"),
    ("Route", {"natGatewayId": "nat-1"}, "routeTableId"),
    ("Route", {"destinationCidrBlock": "10.1.2.3/8"}, "destinationCidrBlock"),
    ("Route", {"destinationIpv6CidrBlock": "10.0.0.0/8"}, "destinationIpv6CidrBlock"),
    ("RouteTableAssociation", {"gatewayId": "igw-1"}, "subnetId"),
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
    ("SecurityGroup", {"namePrefix": "nodes-"}, "name"),
    ("SecurityGroup", {"ingress": [{**ALL_OPEN, "cidrBlocks": []}]}, "ingress[0]"),
    ("SecurityGroup", {"ingress": [{**ALL_OPEN, "toPort": 65535}]}, "ingress[0]"),
    ("SecurityGroup", {"egress": [ALL_OPEN, {**ssh_from("10.0.0.0/8"), "toPort": 70000}]}, "egress[1]"),
    ("SecurityGroup", {"egress": [{**ssh_from("10.0.0.0/8"), "toPort": 21}]}, "egress[0]"),
    ("SecurityGroup", {"ingress": [{**ssh_from("10.0.0.0/8"), "protocol": "ssh"}]}, "ingress[0]"),
    ("SecurityGroup", {"ingress": [ssh_from("10.0.0.1/8")]}, "ingress[0]"),
    ("SecurityGroupRule", {"self": True}, "self"),
    ("SecurityGroupRule", {"type": "inbound"}, "type"),
    ("SecurityGroupRule", {"cidrBlocks": []}, "cidrBlocks"),
    ("SecurityGroupIngressRule", {"cidrIpv6": "::/0"}, "cidrIpv4"),
    ("SecurityGroupIngressRule", {"cidrIpv4": None}, "cidrIpv4"),
    ("SecurityGroupIngressRule", {"toPort": None}, "ipProtocol"),
    ("SecurityGroupIngressRule", {"ipProtocol": "-1", "fromPort": 0, "toPort": 0}, "fromPort"),
    ("SecurityGroupIngressRule", {"description": "x" * 256}, "description"),
    ("NetworkInterface", {"privateIpsCount": 2}, "privateIpsCount"),
    ("VpcPeeringConnection", {"peerRegion": "eu-north-1", "autoAccept": True}, "peerRegion"),
    ("VpnGateway", {"amazonSideAsn": "7224"}, "amazonSideAsn"),
    ("CustomerGateway", {"bgpAsn": "7224"}, "bgpAsn"),
    ("CustomerGateway", {"bgpAsn": "4294967295"}, "bgpAsn"),
    ("CustomerGateway", {"bgpAsnExtended": "4200000000"}, "bgpAsn"),
    ("CustomerGateway", {"ipAddress": "8.20.30"}, "ipAddress"),
    ("CustomerGateway", {"ipAddress": None}, "ipAddress"),
    ("CustomerGateway", {"type": "ipsec.2"}, "type"),
    ("VpnConnection", {"tunnel1PresharedKey": "short"}, "tunnel1PresharedKey"),
    ("VpnConnection", {"tunnel2PresharedKey": "0123456789"}, "tunnel2PresharedKey"),
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
    ("VpnConnection", {"enableAcceleration": True}, "enableAcceleration"),
    ("FlowLog", {"maxAggregationInterval": 30}, "maxAggregationInterval"),
    ("FlowLog", {"subnetId": "subnet-1"}, "vpcId"),
    ("FlowLog", {"iamRoleArn": None}, "iamRoleArn"),
    ("FlowLog", {"logDestination": None}, "logDestination"),
    ("FlowLog", {"trafficType": None}, "trafficType"),
    ("FlowLog", {"vpcId": None, "transitGatewayId": "tgw-1"}, "maxAggregationInterval"),
    ("TransitGateway", {"amazonSideAsn": 65535}, "amazonSideAsn"),
    ("TransitGateway", {"dnsSupport": True}, "dnsSupport"),
    ("VpcAttachment", {"applianceModeSupport": "on"}, "applianceModeSupport"),
    ("VpcAttachment", {"subnetIds": []}, "subnetIds"),
    ("TransitRoute", {"destinationCidrBlock": "10.65.0.1/16"}, "destinationCidrBlock"),
    ("TransitRoute", {"blackhole": True}, "transitGatewayAttachmentId"),
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
def inputs_of(simulation: Simulation) -> dict[str, dict[str, Any]]:
    """Return good inputs of each kind, made once: complaints are about words, not about what exists."""
    return {name: _good(each, World(simulation.region("us-west-2"))) for name, each in SPECIMENS.items()}


def _good(specimen: Specimen, world: World) -> dict[str, Any]:
    return {**KINDS[specimen.token].defaults, **specimen.inputs_in(world)}


@pytest.mark.parametrize(("name", "spoiled", "key"), DEFECTS, ids=lambda value: str(value)[:60])
def test_what_aws_refuses_draws_a_complaint(
    name: str,
    spoiled: dict[str, Any],
    key: str,
    inputs_of: dict[str, dict[str, Any]],
    simulation: Simulation,
) -> None:
    """One wrong input is named, where the same inputs without it pass."""
    kind, aws = KINDS[SPECIMENS[name].token], simulation.region("us-west-2")
    good = inputs_of[name]

    complaints = list(kind.complaints(aws, {**good, **spoiled}))

    assert key in {each.key for each in complaints}
    assert all(each.reason for each in complaints)
    assert list(kind.complaints(aws, good)) == []


def test_a_complaint_about_a_key_keeps_it_secret(simulation: Simulation) -> None:
    """A preshared key is never told back, not even a wrong one."""
    kind = KINDS[SPECIMENS["VpnConnection"].token]

    complaints = list(kind.complaints(simulation.region("us-west-2"), {"tunnel1PresharedKey": "0hush"}))

    assert complaints
    assert not any("hush" in each.reason for each in complaints)


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


GROUP = KINDS["aws:autoscaling/group:Group"]
TEMPLATE = KINDS["aws:ec2/launchTemplate:LaunchTemplate"]
NEAR = KINDS["aws:ec2/placementGroup:PlacementGroup"]
SPOT = {"onDemandPercentageAboveBaseCapacity": 0, "spotAllocationStrategy": "price-capacity-optimized"}


def _nic(card: int, device: int, kind: str = "efa-only") -> dict[str, Any]:
    return {"networkCardIndex": card, "deviceIndex": device, "interfaceType": kind}


def _made(world: World, types: tuple[str, ...], launch: dict[str, Any], **group: Any) -> str:  # noqa: ANN401
    """Make a template and a group of it in the world's first subnet; return the group's name."""
    inputs = {"name": fresh("start"), "imageId": IMAGE, "instanceType": types[0], **launch}
    ident = TEMPLATE.create(world.aws, inputs)
    one = {"launchTemplate": {"id": ident, "version": "1"}}
    several = {
        "mixedInstancesPolicy": {
            "instancesDistribution": group.pop("spread", {}),
            "launchTemplate": {
                "launchTemplateSpecification": {"launchTemplateId": ident, "version": "1"},
                "overrides": [{"instanceType": each} for each in types],
            },
        }
    }
    asked = {"name": fresh("pool"), "minSize": 0, "maxSize": 4, "vpcZoneIdentifiers": [world.subnet], **group}
    return GROUP.create(world.aws, {**GROUP.defaults, **asked, **(one if len(types) == 1 else several)})


def _near(world: World) -> str:
    return NEAR.create(world.aws, {"name": fresh("near"), "strategy": "cluster"})


@pytest.mark.parametrize(
    ("types", "nics", "told"),
    [
        (("p4d.24xlarge",), [_nic(0, 0, "interface"), _nic(0, 1), _nic(1, 0), _nic(2, 0), _nic(3, 0)], ""),
        (("g5.12xlarge", "g5.24xlarge"), [_nic(0, 0, "efa")], ""),
        (("p4d.24xlarge",), [_nic(0, 0, "interface"), _nic(4, 0)], "p4d.24xlarge has no network card 4"),
        (
            ("p5.48xlarge",),
            [_nic(0, 0, "interface"), _nic(1, 2)],
            "takes 2 interfaces, with device indexes from 0 to 1",
        ),
        (("c6in.large",), [_nic(0, n, "interface") for n in range(4)], "takes 3 interfaces"),
        (("m7i.large",), [_nic(0, 0, "efa")], "takes no interface of the type efa"),
        (("g5.12xlarge", "g5.xlarge"), [_nic(0, 0, "efa")], "the network card 0 of g5.xlarge takes no interface"),
        (("g5.12xlarge",), [_nic(0, 0, "efa"), _nic(0, 1)], "g5.12xlarge has at most 1 EFA interfaces, not 2"),
    ],
)
def test_interfaces_fit_every_type_of_a_group(
    types: tuple[str, ...], nics: list[dict[str, Any]], told: str, world: World
) -> None:
    """A card that a type lacks, too many on one, or an EFA where there is none: EC2 would start no such machine."""
    launch = {"networkInterfaces": nics}

    if told:
        with pytest.raises(Refusal, match=told):
            _made(world, types, launch)
    else:
        assert _made(world, types, launch)


@pytest.mark.parametrize(
    ("kind", "zones", "told"),
    [
        ("c7i.large", "a", ""),
        ("t3.large", "a", "t3.large knows no strategy cluster"),
        ("c7i.large", "ab", "cannot span us-west-2a, us-west-2b"),
    ],
)
@pytest.mark.parametrize("whose", ["template", "group"])
def test_machines_fit_their_placement_group(kind: str, zones: str, told: str, whose: str, world: World) -> None:
    """A cluster stands in one zone, and takes no burstable type; whoever names the placement group."""
    near, subnets = _near(world), [world.subnet, world.other_subnet][: len(zones)]
    launch = {"placement": {"groupName": near}} if whose == "template" else {}
    group = {"placementGroup": near} if whose == "group" else {}

    if told:
        with pytest.raises(Refusal, match=told):
            _made(world, (kind,), launch, vpcZoneIdentifiers=subnets, **group)
    else:
        assert _made(world, (kind,), launch, vpcZoneIdentifiers=subnets, **group)


def test_a_capacity_block_stands_in_no_placement_group(world: World) -> None:
    """Not by the group's own word either, which the template knows nothing of."""
    launch = {"instanceMarketOptions": {"marketType": "capacity-block"}}

    assert _made(world, ("p4d.24xlarge",), launch)
    with pytest.raises(Refusal, match="a capacity block takes no placement group"):
        _made(world, ("p4d.24xlarge",), launch, placementGroup=_near(world))


def test_a_capacity_reservation_excludes_a_placement_group(world: World) -> None:
    """Unless it was created in the group, EC2 never finds capacity, and the rehearsal creates none there."""
    target = {"capacityReservationId": "cr-0123456789abcdef0"}
    launch = {"capacityReservationSpecification": {"capacityReservationTarget": target}}

    assert _made(world, ("c7i.large",), launch)
    assert list(TEMPLATE.complaints(world.aws, {"placement": {"groupName": "near"}, **launch}))
    with pytest.raises(Refusal, match="was not created in the placement group"):
        _made(world, ("c7i.large",), launch, placementGroup=_near(world))


def test_a_spot_request_is_tagged_where_there_is_one(world: World) -> None:
    """On demand, EC2 refuses each launch that tags a request."""
    launch = {"tagSpecifications": [{"resourceType": "spot-instances-request", "tags": {"owner": "lab"}}]}
    types = ("c7i.large", "m7i.large")

    assert _made(world, types, launch, spread=SPOT)
    assert _made(world, ("c7i.large",), {**launch, "instanceMarketOptions": {"marketType": "spot"}})
    with pytest.raises(Refusal, match="a launch on demand makes none"):
        _made(world, types, launch, spread={**SPOT, "onDemandPercentageAboveBaseCapacity": 100})
    with pytest.raises(Refusal, match="a launch on demand makes none"):
        _made(world, ("c7i.large",), launch)


def test_what_a_preview_does_not_know_yet_is_passed_over(world: World) -> None:
    """The name of a placement group that the same program makes is told when it is made."""
    block = {"instanceMarketOptions": {"marketType": "capacity-block"}}

    assert not list(TEMPLATE.complaints(world.aws, {"placement": {"groupName": UNKNOWN}, **block}))
    assert list(TEMPLATE.complaints(world.aws, {"placement": {"groupName": "near"}, **block}))


SOUND: dict[str, Any] = {"name": "gate", "minSize": 1, "maxSize": 1, "availabilityZones": ["us-west-2a"]}


@pytest.fixture
def world() -> Iterator[World]:
    """Return a world of a simulated AWS of its own: each test gives a template the same name."""
    with running("111122223333") as simulation:
        yield World(simulation.region("us-west-2"))


def _inputs(world: World, spoiled: dict[str, Any]) -> dict[str, Any]:
    template = {
        "name": "gate",
        "imageId": "resolve:ssm:/aws/service/canonical/ubuntu/server/24.04/stable/current/amd64/hvm/ebs-gp3/ami-id",
        "instanceType": "c6in.large",
        "networkInterfaces": [{"deviceIndex": 0, "networkInterfaceId": world.interface}],
    }
    ident = TEMPLATE.create(world.aws, template)
    return {**GROUP.defaults, **SOUND, "launchTemplate": {"id": ident, "version": "1"}, **spoiled}


def test_a_group_of_one_in_the_interfaces_zone_is_taken(world: World) -> None:
    """The subnet is the interface's own, so the group names the zone alone."""
    assert GROUP.create(world.aws, _inputs(world, {})) == "gate"


@pytest.mark.parametrize(
    ("spoiled", "key"),
    [
        ({"availabilityZones": ["us-west-2b"]}, "availabilityZones"),
        ({"availabilityZones": None, "vpcZoneIdentifiers": ["subnet"]}, "vpcZoneIdentifiers"),
        ({"maxSize": 2}, "maxSize"),
    ],
)
def test_a_group_that_does_not_fit_the_interface_is_refused(spoiled: dict[str, Any], key: str, world: World) -> None:
    """Another zone, subnets of its own, or a second machine: none of them would ever start."""
    inputs = _inputs(world, spoiled)
    if inputs.get("vpcZoneIdentifiers"):
        inputs["vpcZoneIdentifiers"] = [world.subnet]

    with pytest.raises(Refusal) as refused:
        GROUP.create(world.aws, inputs)

    assert refused.value.key == key
