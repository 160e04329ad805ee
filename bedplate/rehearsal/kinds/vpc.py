"""VPCs, internet gateways, subnets and the CIDR reservations of subnets, and peering connections between VPCs."""

from collections.abc import Iterator
from functools import partial
from ipaddress import ip_network
from typing import Any

from bedplate.rehearsal.kind import InvalidInput, Props, ResourceKind, delete_nothing, replaces, updates
from bedplate.rehearsal.kinds import ec2
from bedplate.rehearsal.kinds.calls import aws_names, call_with, copied, creates_setting, deletes
from bedplate.rehearsal.kinds.limits import Choice, checks, rollback
from bedplate.rehearsal.simulation import Aws
from bedplate.rehearsal.state import ResourceError
from bedplate.rehearsal.wire import is_known

# --- VPCs

_ATTRIBUTES = aws_names("enableDnsSupport", "enableDnsHostnames")
# Prefix lengths of VPCs and subnets, and ranges that no VPC can have. Source: VPC user guide, "VPC CIDR blocks".
_SIZES = range(16, 29)
_RESERVED = tuple(map(ip_network, ("0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "224.0.0.0/4")))


def _check_vpc(inputs: Props) -> Iterator[InvalidInput]:
    errors = list(ec2.check_cidrs(inputs, ["cidrBlock"], sizes=_SIZES))
    yield from errors
    block = inputs.get("cidrBlock")
    if is_known(block) and not errors and any(ip_network(block).overlaps(reserved) for reserved in _RESERVED):
        yield InvalidInput("cidrBlock", f"{block} is in a reserved range (InvalidVpc.Range)")


def _create_vpc(aws: Aws, inputs: Props) -> str:
    tags = ec2.tag_specifications("vpc", inputs)
    response = call_with(aws, ("ec2", "create_vpc"), inputs, apart=(*_ATTRIBUTES, "tags"), **tags)
    ident: str = response["Vpc"]["VpcId"]
    # The attributes of a new VPC in AWS.
    initial = {"enableDnsSupport": True, "enableDnsHostnames": False, "tags": inputs.get("tags")}
    _update_vpc(aws, ident, initial, inputs)
    return ident


def _read_vpc(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    vpc = aws.call("ec2", "describe_vpcs", VpcIds=[ident])["Vpcs"][0]
    (table,) = ec2.matching(aws, ec2.ROUTE_TABLE, {"vpc-id": ident, "association.main": "true"})
    (acl,) = ec2.matching(aws, ec2.NETWORK_ACL, {"vpc-id": ident, "default": "true"})
    (group,) = ec2.default_groups(aws, ident)
    return {
        **copied(vpc, "cidrBlock", "dhcpOptionsId"),
        "arn": aws.arn("ec2", f"vpc/{ident}"),
        "defaultNetworkAclId": acl["NetworkAclId"],
        "defaultRouteTableId": table["RouteTableId"],
        "defaultSecurityGroupId": group,
        "mainRouteTableId": table["RouteTableId"],
        "ownerId": aws.account,
    }


def _update_vpc(aws: Aws, ident: str, old: Props, new: Props) -> None:
    for name, parameter in _ATTRIBUTES.items():
        if name in new and old.get(name) != new[name]:
            aws.call("ec2", "modify_vpc_attribute", VpcId=ident, **{parameter: {"Value": new[name]}})
    ec2.retag(aws, ident, old, new)


def _delete_vpc(aws: Aws, ident: str, outputs: Props) -> None:
    aws.call("ec2", "delete_vpc", VpcId=ident)
    # AWS deletes the network ACL with the VPC. moto does not.
    aws.call("ec2", "delete_network_acl", NetworkAclId=outputs["defaultNetworkAclId"])


VPC = ResourceKind(
    token="aws:ec2/vpc:Vpc",
    inputs=updates(*_ATTRIBUTES, "tags") | replaces("cidrBlock"),
    defaults={"enableDnsSupport": True},
    computed=frozenset({"cidrBlock", "enableDnsHostnames"}),
    create=_create_vpc,
    read=_read_vpc,
    update=_update_vpc,
    delete=_delete_vpc,
    complaints=checks({}, _check_vpc),
)


# --- Internet gateways


def _create_internet_gateway(aws: Aws, inputs: Props) -> str:
    response = aws.call("ec2", "create_internet_gateway", **ec2.tag_specifications("internet-gateway", inputs))
    ident: str = response["InternetGateway"]["InternetGatewayId"]
    with rollback(lambda: aws.call("ec2", "delete_internet_gateway", InternetGatewayId=ident)):
        _attach_gateway(aws, ident, inputs.get("vpcId"))
    return ident


def _attach_gateway(aws: Aws, ident: str, vpc: str | None) -> None:
    if not vpc:
        return
    if ec2.matching(aws, ec2.INTERNET_GATEWAY, {"attachment.vpc-id": vpc}):
        raise ResourceError(
            "InvalidParameterValue", f"Network {vpc} already has an internet gateway attached", key="vpcId"
        )
    aws.call("ec2", "attach_internet_gateway", InternetGatewayId=ident, VpcId=vpc)


def _read_internet_gateway(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    attachments = ec2.described(aws, ec2.INTERNET_GATEWAY, ident)["Attachments"]
    return {
        "arn": aws.arn("ec2", f"internet-gateway/{ident}"),
        "ownerId": aws.account,
        "vpcId": attachments[0]["VpcId"] if attachments else "",
    }


def _update_internet_gateway(aws: Aws, ident: str, old: Props, new: Props) -> None:
    if old.get("vpcId") != new.get("vpcId"):
        _detach_gateway(aws, ident)
        _attach_gateway(aws, ident, new.get("vpcId"))
    ec2.retag(aws, ident, old, new)


def _detach_gateway(aws: Aws, ident: str) -> None:
    for attachment in ec2.described(aws, ec2.INTERNET_GATEWAY, ident)["Attachments"]:
        aws.call("ec2", "detach_internet_gateway", InternetGatewayId=ident, VpcId=attachment["VpcId"])


def _delete_internet_gateway(aws: Aws, ident: str, outputs: Props) -> None:
    _detach_gateway(aws, ident)
    aws.call("ec2", "delete_internet_gateway", InternetGatewayId=ident)


INTERNET_GATEWAY = ResourceKind(
    token="aws:ec2/internetGateway:InternetGateway",
    inputs=updates("tags", "vpcId"),
    computed=frozenset({"vpcId"}),
    create=_create_internet_gateway,
    read=_read_internet_gateway,
    update=_update_internet_gateway,
    delete=_delete_internet_gateway,
)


# --- Subnets

_PUBLIC = "mapPublicIpOnLaunch"


def _check_subnet(aws: Aws, inputs: Props) -> Iterator[InvalidInput]:
    yield from ec2.check_cidrs(inputs, ["cidrBlock"], sizes=_SIZES)
    if not inputs.get("cidrBlock"):
        yield InvalidInput("cidrBlock", "is required: IPv6-only subnets are not modelled")


def _create_subnet(aws: Aws, inputs: Props) -> str:
    values = {**inputs, "availabilityZone": _zone_name(aws, inputs)}
    response = call_with(aws, ("ec2", "create_subnet"), values, apart=(_PUBLIC, "tags"))
    ident: str = response["Subnet"]["SubnetId"]
    _update_subnet(aws, ident, {}, inputs)
    return ident


def _zone_name(aws: Aws, inputs: Props) -> str:
    """Return the name of the requested zone, or the first one; raise ResourceError for a zone of another region."""
    zones = aws.call("ec2", "describe_availability_zones")["AvailabilityZones"]
    names = {str(zone["ZoneName"]) for zone in zones}
    requested = str(inputs.get("availabilityZone") or min(names))
    if requested not in names:
        known_names = ", ".join(sorted(names))
        raise ResourceError(
            "InvalidParameterValue",
            f"Value ({requested}) for parameter availabilityZone is invalid. Subnets can currently only be created in "
            f"the following availability zones: {known_names}.",
            key="availabilityZone",
        )
    return requested


def _read_subnet(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    subnet = ec2.described(aws, ec2.SUBNET, ident)
    return {
        **copied(subnet, "availabilityZone", "availabilityZoneId", "cidrBlock"),
        "arn": aws.arn("ec2", f"subnet/{ident}"),
        "ownerId": aws.account,
        "privateDnsHostnameTypeOnLaunch": "ip-name",
    }


def _update_subnet(aws: Aws, ident: str, old: Props, new: Props) -> None:
    is_public = bool(new.get(_PUBLIC))
    if bool(old.get(_PUBLIC)) != is_public:
        aws.call("ec2", "modify_subnet_attribute", SubnetId=ident, MapPublicIpOnLaunch={"Value": is_public})
    ec2.retag(aws, ident, old, new)


def _delete_subnet(aws: Aws, ident: str, outputs: Props) -> None:
    if ec2.matching(aws, ec2.NETWORK_INTERFACE, {"subnet-id": ident}):
        raise ResourceError("DependencyViolation", f"The subnet '{ident}' has dependencies and cannot be deleted.")
    aws.call("ec2", "delete_subnet", SubnetId=ident)


SUBNET = ResourceKind(
    token="aws:ec2/subnet:Subnet",
    inputs=updates(_PUBLIC, "tags") | replaces("availabilityZone", "cidrBlock", "vpcId"),
    defaults={_PUBLIC: False},
    computed=frozenset({"availabilityZone"}),
    create=_create_subnet,
    read=_read_subnet,
    update=_update_subnet,
    delete=_delete_subnet,
    complaints=_check_subnet,
)


# --- CIDR reservations of subnets

_RESERVATIONS = "SubnetIpv4CidrReservations"
_RESERVATION_SIZES = range(16, 33)


def _create_reservation(aws: Aws, inputs: Props) -> str:
    ec2.require(aws, ec2.SUBNET, inputs["subnetId"])
    call = ("ec2", "create_subnet_cidr_reservation")
    response = call_with(aws, call, inputs, renames={"cidrBlock": "Cidr"})
    return str(response["SubnetCidrReservation"]["SubnetCidrReservationId"])


def _read_reservation(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    subnet = inputs["subnetId"]
    reservations = aws.call("ec2", "get_subnet_cidr_reservations", SubnetId=subnet)[_RESERVATIONS]
    if ident not in {reservation["SubnetCidrReservationId"] for reservation in reservations}:
        raise ResourceError("InvalidSubnetCidrReservationID.NotFound", f"{subnet} has no reservation {ident}")
    return {"ownerId": aws.account}


SUBNET_RESERVATION = ResourceKind(
    token="aws:ec2/subnetCidrReservation:SubnetCidrReservation",
    inputs=replaces("cidrBlock", "description", "reservationType", "subnetId"),
    create=_create_reservation,
    read=_read_reservation,
    delete=deletes("ec2", "delete_subnet_cidr_reservation", "SubnetCidrReservationId"),
    complaints=checks(
        {"reservationType": Choice(("explicit", "prefix"))},
        partial(ec2.check_cidrs, keys=["cidrBlock"], sizes=_RESERVATION_SIZES),
    ),
    note="moto does not return the description of a reservation",
)


_SIDES = {"accepter": "AccepterPeeringConnectionOptions", "requester": "RequesterPeeringConnectionOptions"}


def _create_peering(aws: Aws, inputs: Props) -> str:
    _require_disjoint(aws, inputs)
    response = call_with(aws, ("ec2", "create_vpc_peering_connection"), inputs, apart=("tags",))
    return ec2.tag(aws, response["VpcPeeringConnection"]["VpcPeeringConnectionId"], inputs)


def _require_disjoint(aws: Aws, inputs: Props) -> None:
    """Raise ResourceError for VPCs with overlapping blocks: AWS creates such a peering in the state `failed`."""
    peer_aws = aws.in_region(inputs.get("peerRegion") or aws.region)
    block = ec2.described(aws, ec2.VPC, inputs["vpcId"])["CidrBlock"]
    peer_block = ec2.described(peer_aws, ec2.VPC, inputs["peerVpcId"])["CidrBlock"]
    if ip_network(block).overlaps(ip_network(peer_block)):
        message = "Failed due to incorrect VPC-ID, Account ID, or overlapping CIDR range"
        raise ResourceError("failed", f"{message} ({block} and {peer_block})", key="peerVpcId")


def _read_peering(aws: Aws, ident: str, inputs: Props, peer_side: str = "AccepterVpcInfo") -> dict[str, Any]:
    peering = ec2.described(aws, ec2.PEERING, ident)
    peer = peering[peer_side]
    return {
        "acceptStatus": peering["Status"]["Code"],
        "peerOwnerId": peer["OwnerId"],
        "peerRegion": peer["Region"],
        "peerVpcId": peer["VpcId"],
        **_option_outputs(peering),
    }


def _option_outputs(peering: dict[str, Any]) -> dict[str, Any]:
    infos = {"accepter": peering["AccepterVpcInfo"], "requester": peering["RequesterVpcInfo"]}
    return {
        side: {"allowRemoteVpcDnsResolution": info["PeeringOptions"]["AllowDnsResolutionFromRemoteVpc"]}
        for side, info in infos.items()
    }


def _read_accepter(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    """Return the outputs of the accepter, whose peer is the requester."""
    own_vpc = ec2.described(aws, ec2.PEERING, ident)["AccepterVpcInfo"]["VpcId"]
    return {**_read_peering(aws, ident, inputs, "RequesterVpcInfo"), "vpcId": own_vpc}


def _read_options(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    return _option_outputs(ec2.described(aws, ec2.PEERING, ident))


def _update_accepter(aws: Aws, ident: str, old: Props, new: Props) -> None:
    status = ec2.described(aws, ec2.PEERING, ident)["Status"]["Code"]
    if new.get("autoAccept") and status == "pending-acceptance":
        aws.call("ec2", "accept_vpc_peering_connection", VpcPeeringConnectionId=ident)
    ec2.retag(aws, ident, old, new)


def _update_options(aws: Aws, ident: str, old: Props, new: Props) -> None:
    if ec2.described(aws, ec2.PEERING, ident)["Status"]["Code"] != "active":
        message = f"Peering {ident} is not active. Peering options can be added only to active peerings."
        raise ResourceError("OperationNotPermitted", message)
    params = {
        parameter: {"AllowDnsResolutionFromRemoteVpc": bool(new[side].get("allowRemoteVpcDnsResolution"))}
        for side, parameter in _SIDES.items()
        if new.get(side)
    }
    aws.call("ec2", "modify_vpc_peering_connection_options", VpcPeeringConnectionId=ident, **params)


VPC_PEERING = ResourceKind(
    token="aws:ec2/vpcPeeringConnection:VpcPeeringConnection",
    inputs=updates("tags") | replaces("peerRegion", "peerVpcId", "vpcId"),
    computed=frozenset({"peerRegion"}),
    create=_create_peering,
    read=_read_peering,
    update=ec2.retag,
    delete=deletes("ec2", "delete_vpc_peering_connection", "VpcPeeringConnectionId"),
)
VPC_PEERING_ACCEPTER = ResourceKind(
    token="aws:ec2/vpcPeeringConnectionAccepter:VpcPeeringConnectionAccepter",
    inputs=updates("autoAccept", "tags") | replaces("vpcPeeringConnectionId"),
    changed_by_update=frozenset({"acceptStatus"}),
    create=creates_setting("vpcPeeringConnectionId", _update_accepter),
    read=_read_accepter,
    update=_update_accepter,
    delete=delete_nothing,  # the peering is deleted with its request
)
PEERING_OPTIONS = ResourceKind(
    token="aws:ec2/peeringConnectionOptions:PeeringConnectionOptions",
    inputs=updates(*_SIDES) | replaces("vpcPeeringConnectionId"),
    computed=frozenset(_SIDES),
    create=creates_setting("vpcPeeringConnectionId", _update_options),
    read=_read_options,
    update=_update_options,
    delete=delete_nothing,  # the peering is deleted with its request
)
