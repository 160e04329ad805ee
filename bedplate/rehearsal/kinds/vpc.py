"""VPCs, internet gateways, subnets and the CIDR reservations of subnets."""

from collections.abc import Iterator
from ipaddress import ip_network
from typing import Any

from bedplate.rehearsal.kind import InvalidInput, Props, ResourceKind, replaces, updates
from bedplate.rehearsal.kinds import ec2
from bedplate.rehearsal.kinds.limits import Choice, check_exclusive, check_limits, rollback
from bedplate.rehearsal.placement import call_parameters
from bedplate.rehearsal.simulation import Aws
from bedplate.rehearsal.state import ResourceError
from bedplate.rehearsal.wire import is_known

# --- VPCs

_ATTRIBUTES = {
    "enableDnsSupport": "EnableDnsSupport",
    "enableDnsHostnames": "EnableDnsHostnames",
    "enableNetworkAddressUsageMetrics": "EnableNetworkAddressUsageMetrics",
}
# Prefix lengths of VPCs and subnets, and ranges that no VPC can have. Source: VPC user guide, "VPC CIDR blocks".
_SIZES = range(16, 29)
_RESERVED = tuple(map(ip_network, ("0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "224.0.0.0/4")))
_LIMITS = {"instanceTenancy": Choice(("default", "dedicated"))}


def _check_vpc(aws: Aws, inputs: Props) -> Iterator[InvalidInput]:
    yield from check_limits(inputs, _LIMITS)
    errors = list(ec2.check_cidrs(inputs, ["cidrBlock"], sizes=_SIZES))
    yield from errors
    block = inputs.get("cidrBlock")
    if is_known(block) and not errors and any(ip_network(block).overlaps(reserved) for reserved in _RESERVED):
        yield InvalidInput("cidrBlock", f"{block} is in a reserved range (InvalidVpc.Range)")


def _create_vpc(aws: Aws, inputs: Props) -> str:
    params = call_parameters(aws, ("ec2", "create_vpc"), inputs, apart=(*_ATTRIBUTES, "tags"))
    response = aws.call("ec2", "create_vpc", **params, **ec2.tag_specifications("vpc", inputs))
    ident: str = response["Vpc"]["VpcId"]
    # The attributes of a new VPC in AWS.
    initial = {"enableDnsSupport": True, "enableDnsHostnames": False, "tags": inputs.get("tags")}
    _update_vpc(aws, ident, initial, inputs)
    return ident


def _read_vpc(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    vpc = aws.call("ec2", "describe_vpcs", VpcIds=[ident])["Vpcs"][0]
    filters = [{"Name": "vpc-id", "Values": [ident]}]
    main_filters = [*filters, {"Name": "association.main", "Values": ["true"]}]
    tables = aws.call("ec2", "describe_route_tables", Filters=main_filters)["RouteTables"]
    acls = aws.call("ec2", "describe_network_acls", Filters=[*filters, {"Name": "default", "Values": ["true"]}])
    group_filters = [*filters, {"Name": "group-name", "Values": ["default"]}]
    groups = aws.call("ec2", "describe_security_groups", Filters=group_filters)["SecurityGroups"]
    return {
        "arn": aws.arn("ec2", f"vpc/{ident}"),
        "cidrBlock": vpc["CidrBlock"],
        "defaultNetworkAclId": acls["NetworkAcls"][0]["NetworkAclId"],
        "defaultRouteTableId": tables[0]["RouteTableId"],
        "defaultSecurityGroupId": groups[0]["GroupId"],
        "dhcpOptionsId": vpc["DhcpOptionsId"],
        "mainRouteTableId": tables[0]["RouteTableId"],
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
    inputs=updates(*_ATTRIBUTES, "tags") | replaces("cidrBlock", "instanceTenancy"),
    defaults={"enableDnsSupport": True, "instanceTenancy": "default"},
    computed=frozenset({"cidrBlock", "enableDnsHostnames"}),
    create=_create_vpc,
    read=_read_vpc,
    update=_update_vpc,
    delete=_delete_vpc,
    complaints=_check_vpc,
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
    filters = [{"Name": "attachment.vpc-id", "Values": [vpc]}]
    if aws.call("ec2", "describe_internet_gateways", Filters=filters)["InternetGateways"]:
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

# Inputs that ModifySubnetAttribute sets.
_SUBNET_ATTRIBUTES = {
    "mapPublicIpOnLaunch": "MapPublicIpOnLaunch",
    "enableResourceNameDnsARecordOnLaunch": "EnableResourceNameDnsARecordOnLaunch",
}
# Inputs that moto does not have; their default is false.
_UNSUPPORTED = ("assignIpv6AddressOnCreation", "enableDns64", "enableResourceNameDnsAaaaRecordOnLaunch")
_ZONES = ("availabilityZone", "availabilityZoneId")


def _check_subnet(aws: Aws, inputs: Props) -> Iterator[InvalidInput]:
    yield from ec2.check_cidrs(inputs, ["cidrBlock"], sizes=_SIZES)
    if not inputs.get("cidrBlock"):
        yield InvalidInput("cidrBlock", "is required: IPv6-only subnets are not modelled")
    yield from check_exclusive(inputs, *_ZONES)
    for name in (*_UNSUPPORTED, "ipv6Native"):
        if inputs.get(name):
            yield InvalidInput(name, "is not modelled by the rehearsal")


def _create_subnet(aws: Aws, inputs: Props) -> str:
    zone = _zone_name(aws, inputs)
    parameters = {**inputs, "availabilityZone": zone}
    separate = (*_SUBNET_ATTRIBUTES, *_UNSUPPORTED, "availabilityZoneId", "ipv6Native", "tags")
    response = aws.call(
        "ec2", "create_subnet", **call_parameters(aws, ("ec2", "create_subnet"), parameters, apart=separate)
    )
    ident: str = response["Subnet"]["SubnetId"]
    _update_subnet(aws, ident, {}, inputs)
    return ident


def _zone_name(aws: Aws, inputs: Props) -> str:
    """Return the name of the requested zone, or the first one; raise ResourceError for a zone of another region."""
    zones = aws.call("ec2", "describe_availability_zones")["AvailabilityZones"]
    names = {zone["ZoneName"]: zone["ZoneName"] for zone in zones}
    by_id = {zone["ZoneId"]: zone["ZoneName"] for zone in zones}
    requested = inputs.get("availabilityZone") or inputs.get("availabilityZoneId") or min(names)
    if requested not in names | by_id:
        known_names = ", ".join(sorted(names))
        raise ResourceError(
            "InvalidParameterValue",
            f"Value ({requested}) for parameter availabilityZone is invalid. Subnets can currently only be created in "
            f"the following availability zones: {known_names}.",
            key="availabilityZone",
        )
    return str((names | by_id)[requested])


def _read_subnet(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    subnet = ec2.described(aws, ec2.SUBNET, ident)
    return {
        "arn": aws.arn("ec2", f"subnet/{ident}"),
        "availabilityZone": subnet["AvailabilityZone"],
        "availabilityZoneId": subnet["AvailabilityZoneId"],
        "cidrBlock": subnet["CidrBlock"],
        "ownerId": aws.account,
        "privateDnsHostnameTypeOnLaunch": "ip-name",
    }


def _update_subnet(aws: Aws, ident: str, old: Props, new: Props) -> None:
    for name, parameter in _SUBNET_ATTRIBUTES.items():
        if bool(old.get(name)) != bool(new.get(name)):
            aws.call(
                "ec2",
                "modify_subnet_attribute",
                SubnetId=ident,
                **{parameter: {"Value": bool(new.get(name))}},
            )
    ec2.retag(aws, ident, old, new)


def _delete_subnet(aws: Aws, ident: str, outputs: Props) -> None:
    if ec2.find_interfaces(aws, "subnet-id", ident):
        raise ResourceError("DependencyViolation", f"The subnet '{ident}' has dependencies and cannot be deleted.")
    aws.call("ec2", "delete_subnet", SubnetId=ident)


SUBNET = ResourceKind(
    token="aws:ec2/subnet:Subnet",
    inputs=updates(*_SUBNET_ATTRIBUTES, *_UNSUPPORTED, "tags") | replaces(*_ZONES, "cidrBlock", "ipv6Native", "vpcId"),
    defaults=dict.fromkeys((*_SUBNET_ATTRIBUTES, *_UNSUPPORTED, "ipv6Native"), False),
    computed=frozenset(_ZONES),
    create=_create_subnet,
    read=_read_subnet,
    update=_update_subnet,
    delete=_delete_subnet,
    complaints=_check_subnet,
)


# --- CIDR reservations of subnets

_RESERVATIONS = "SubnetIpv4CidrReservations"
_RESERVATION_SIZES = range(16, 33)


def _check_reservation(aws: Aws, inputs: Props) -> Iterator[InvalidInput]:
    yield from ec2.check_cidrs(inputs, ["cidrBlock"], sizes=_RESERVATION_SIZES)
    yield from check_limits(inputs, {"reservationType": Choice(("explicit", "prefix"))})


def _create_reservation(aws: Aws, inputs: Props) -> str:
    ec2.described(aws, ec2.SUBNET, inputs["subnetId"])
    parameters = {
        "SubnetId": inputs["subnetId"],
        "Cidr": inputs["cidrBlock"],
        "ReservationType": inputs["reservationType"],
    }
    response = aws.call("ec2", "create_subnet_cidr_reservation", **parameters)
    return str(response["SubnetCidrReservation"]["SubnetCidrReservationId"])


def _read_reservation(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    subnet = inputs["subnetId"]
    reservations = aws.call("ec2", "get_subnet_cidr_reservations", SubnetId=subnet)[_RESERVATIONS]
    if ident not in {reservation["SubnetCidrReservationId"] for reservation in reservations}:
        raise ResourceError("InvalidSubnetCidrReservationID.NotFound", f"{subnet} has no reservation {ident}")
    return {"ownerId": aws.account}


def _delete_reservation(aws: Aws, ident: str, outputs: Props) -> None:
    aws.call("ec2", "delete_subnet_cidr_reservation", SubnetCidrReservationId=ident)


SUBNET_RESERVATION = ResourceKind(
    token="aws:ec2/subnetCidrReservation:SubnetCidrReservation",
    inputs=replaces("cidrBlock", "description", "reservationType", "subnetId"),
    create=_create_reservation,
    read=_read_reservation,
    delete=_delete_reservation,
    complaints=_check_reservation,
    note="moto does not return the description of a reservation",
)
