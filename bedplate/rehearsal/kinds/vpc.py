"""VPCs."""

from collections.abc import Iterator
from ipaddress import ip_network
from typing import Any

from bedplate.rehearsal.kind import Complaint, Kind, Props, replaces, updates
from bedplate.rehearsal.kinds.ec2 import INTERNET_GATEWAY as NOUN
from bedplate.rehearsal.kinds.ec2 import SUBNET as EC2_SUBNET
from bedplate.rehearsal.kinds.ec2 import block_complaints, born_with, described, interfaces_of, retag
from bedplate.rehearsal.kinds.limits import Choice, beyond, together, undoing
from bedplate.rehearsal.placement import placed
from bedplate.rehearsal.simulation import Aws
from bedplate.rehearsal.state import Refusal
from bedplate.rehearsal.wire import is_known

_ATTRIBUTES = {
    "enableDnsSupport": "EnableDnsSupport",
    "enableDnsHostnames": "EnableDnsHostnames",
    "enableNetworkAddressUsageMetrics": "EnableNetworkAddressUsageMetrics",
}
# Amazon VPC user guide, "VPC CIDR blocks": prefix lengths, and ranges in which no VPC can be.
_SIZES = range(16, 29)
_BARRED = tuple(map(ip_network, ("0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "224.0.0.0/4")))
_LIMITS = {"instanceTenancy": Choice(("default", "dedicated"))}


def _create(aws: Aws, inputs: Props) -> str:
    params = placed(aws, ("ec2", "create_vpc"), inputs, apart=(*_ATTRIBUTES, "tags"))
    made = aws.call("ec2", "create_vpc", **params, **born_with("vpc", inputs))
    ident: str = made["Vpc"]["VpcId"]
    # What a new VPC has: it resolves names and gives out none.
    born = {"enableDnsSupport": True, "enableDnsHostnames": False, "tags": inputs.get("tags")}
    _update(aws, ident, born, inputs)
    return ident


def _update(aws: Aws, ident: str, old: Props, new: Props) -> None:
    for name, parameter in _ATTRIBUTES.items():
        if name in new and old.get(name) != new[name]:
            aws.call("ec2", "modify_vpc_attribute", VpcId=ident, **{parameter: {"Value": new[name]}})
    retag(aws, ident, old, new)


def _read(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    found = aws.call("ec2", "describe_vpcs", VpcIds=[ident])["Vpcs"][0]
    inside = [{"Name": "vpc-id", "Values": [ident]}]
    main = [*inside, {"Name": "association.main", "Values": ["true"]}]
    tables = aws.call("ec2", "describe_route_tables", Filters=main)["RouteTables"]
    acls = aws.call("ec2", "describe_network_acls", Filters=[*inside, {"Name": "default", "Values": ["true"]}])
    default = [*inside, {"Name": "group-name", "Values": ["default"]}]
    groups = aws.call("ec2", "describe_security_groups", Filters=default)["SecurityGroups"]
    return {
        "arn": aws.arn("ec2", f"vpc/{ident}"),
        "cidrBlock": found["CidrBlock"],
        "defaultNetworkAclId": acls["NetworkAcls"][0]["NetworkAclId"],
        "defaultRouteTableId": tables[0]["RouteTableId"],
        "defaultSecurityGroupId": groups[0]["GroupId"],
        "dhcpOptionsId": found["DhcpOptionsId"],
        "mainRouteTableId": tables[0]["RouteTableId"],
        "ownerId": aws.account,
    }


def _delete(aws: Aws, ident: str, outputs: Props) -> None:
    aws.call("ec2", "delete_vpc", VpcId=ident)
    # AWS deletes it with its VPC, moto does not.
    aws.call("ec2", "delete_network_acl", NetworkAclId=outputs["defaultNetworkAclId"])


def _complaints(aws: Aws, inputs: Props) -> Iterator[Complaint]:
    yield from beyond(inputs, _LIMITS)
    found = list(block_complaints(inputs, ["cidrBlock"], sizes=_SIZES))
    yield from found
    block = inputs.get("cidrBlock")
    if is_known(block) and not found and any(ip_network(block).overlaps(barred) for barred in _BARRED):
        yield Complaint("cidrBlock", f"InvalidVpc.Range: the CIDR '{block}' is invalid")


VPC = Kind(
    token="aws:ec2/vpc:Vpc",
    inputs=updates(*_ATTRIBUTES, "tags") | replaces("cidrBlock", "instanceTenancy"),
    defaults={"enableDnsSupport": True, "instanceTenancy": "default"},
    computed=frozenset({"cidrBlock", "enableDnsHostnames"}),
    create=_create,
    read=_read,
    update=_update,
    delete=_delete,
    complaints=_complaints,
)


def _internet_gateway_create(aws: Aws, inputs: Props) -> str:
    made = aws.call("ec2", "create_internet_gateway", **born_with("internet-gateway", inputs))
    ident: str = made["InternetGateway"]["InternetGatewayId"]
    with undoing(lambda: aws.call("ec2", "delete_internet_gateway", InternetGatewayId=ident)):
        _attach(aws, ident, inputs.get("vpcId"))
    return ident


def _attach(aws: Aws, ident: str, vpc: str | None) -> None:
    if not vpc:
        return
    there = [{"Name": "attachment.vpc-id", "Values": [vpc]}]
    if aws.call("ec2", "describe_internet_gateways", Filters=there)["InternetGateways"]:
        raise Refusal("InvalidParameterValue", f"Network {vpc} already has an internet gateway attached", key="vpcId")
    aws.call("ec2", "attach_internet_gateway", InternetGatewayId=ident, VpcId=vpc)


def _detach(aws: Aws, ident: str) -> None:
    for attachment in described(aws, NOUN, ident)["Attachments"]:
        aws.call("ec2", "detach_internet_gateway", InternetGatewayId=ident, VpcId=attachment["VpcId"])


def _internet_gateway_update(aws: Aws, ident: str, old: Props, new: Props) -> None:
    if old.get("vpcId") != new.get("vpcId"):
        _detach(aws, ident)
        _attach(aws, ident, new.get("vpcId"))
    retag(aws, ident, old, new)


def _internet_gateway_read(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    attached = described(aws, NOUN, ident)["Attachments"]
    return {
        "arn": aws.arn("ec2", f"internet-gateway/{ident}"),
        "ownerId": aws.account,
        "vpcId": attached[0]["VpcId"] if attached else "",
    }


def _internet_gateway_delete(aws: Aws, ident: str, outputs: Props) -> None:
    _detach(aws, ident)
    aws.call("ec2", "delete_internet_gateway", InternetGatewayId=ident)


INTERNET_GATEWAY = Kind(
    token="aws:ec2/internetGateway:InternetGateway",
    inputs=updates("tags", "vpcId"),
    computed=frozenset({"vpcId"}),
    create=_internet_gateway_create,
    read=_internet_gateway_read,
    update=_internet_gateway_update,
    delete=_internet_gateway_delete,
)


# Attributes that have a call of their own.
_SUBNET_ATTRIBUTES = {
    "mapPublicIpOnLaunch": "MapPublicIpOnLaunch",
    "enableResourceNameDnsARecordOnLaunch": "EnableResourceNameDnsARecordOnLaunch",
}
# What moto has no place for; the provider fills in that it is off.
_UNMODELLED = ("assignIpv6AddressOnCreation", "enableDns64", "enableResourceNameDnsAaaaRecordOnLaunch")
_ZONES = ("availabilityZone", "availabilityZoneId")
# Amazon VPC user guide, "Subnet CIDR blocks"


def _subnet_create(aws: Aws, inputs: Props) -> str:
    zone = _zone(aws, inputs)
    given = {**inputs, "availabilityZone": zone}
    apart = (*_SUBNET_ATTRIBUTES, *_UNMODELLED, "availabilityZoneId", "ipv6Native", "tags")
    made = aws.call("ec2", "create_subnet", **placed(aws, ("ec2", "create_subnet"), given, apart=apart))
    ident: str = made["Subnet"]["SubnetId"]
    _subnet_update(aws, ident, {}, inputs)
    return ident


def _zone(aws: Aws, inputs: Props) -> str:
    """Return the zone that is asked for; moto would take one of any region, and AWS picks when none is."""
    zones = aws.call("ec2", "describe_availability_zones")["AvailabilityZones"]
    names = {found["ZoneName"]: found["ZoneName"] for found in zones}
    by_id = {found["ZoneId"]: found["ZoneName"] for found in zones}
    wanted = inputs.get("availabilityZone") or inputs.get("availabilityZoneId") or min(names)
    if wanted not in names | by_id:
        known = ", ".join(sorted(names))
        raise Refusal(
            "InvalidParameterValue",
            f"Value ({wanted}) for parameter availabilityZone is invalid. Subnets can currently only be created in "
            f"the following availability zones: {known}.",
            key="availabilityZone",
        )
    return str((names | by_id)[wanted])


def _subnet_update(aws: Aws, ident: str, old: Props, new: Props) -> None:
    for name, parameter in _SUBNET_ATTRIBUTES.items():
        if bool(old.get(name)) != bool(new.get(name)):
            aws.call(
                "ec2",
                "modify_subnet_attribute",
                SubnetId=ident,
                **{parameter: {"Value": bool(new.get(name))}},
            )
    retag(aws, ident, old, new)


def _subnet_read(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    found = described(aws, EC2_SUBNET, ident)
    return {
        "arn": aws.arn("ec2", f"subnet/{ident}"),
        "availabilityZone": found["AvailabilityZone"],
        "availabilityZoneId": found["AvailabilityZoneId"],
        "cidrBlock": found["CidrBlock"],
        "ownerId": aws.account,
        "privateDnsHostnameTypeOnLaunch": "ip-name",
    }


def _subnet_delete(aws: Aws, ident: str, outputs: Props) -> None:
    if interfaces_of(aws, "subnet-id", ident):
        raise Refusal("DependencyViolation", f"The subnet '{ident}' has dependencies and cannot be deleted.")
    aws.call("ec2", "delete_subnet", SubnetId=ident)


def _subnet_complaints(aws: Aws, inputs: Props) -> Iterator[Complaint]:
    yield from block_complaints(inputs, ["cidrBlock"], sizes=_SIZES)
    if not inputs.get("cidrBlock"):
        yield Complaint("cidrBlock", "is missing: the rehearsal has no subnets without an IPv4 block")
    yield from together(inputs, *_ZONES)
    for name in (*_UNMODELLED, "ipv6Native"):
        if inputs.get(name):
            yield Complaint(name, "is an input that the rehearsal has no place for")


SUBNET = Kind(
    token="aws:ec2/subnet:Subnet",
    inputs=updates(*_SUBNET_ATTRIBUTES, *_UNMODELLED, "tags") | replaces(*_ZONES, "cidrBlock", "ipv6Native", "vpcId"),
    defaults=dict.fromkeys((*_SUBNET_ATTRIBUTES, *_UNMODELLED, "ipv6Native"), False),
    computed=frozenset(_ZONES),
    create=_subnet_create,
    read=_subnet_read,
    update=_subnet_update,
    delete=_subnet_delete,
    complaints=_subnet_complaints,
)


_LISTING = "SubnetIpv4CidrReservations"
_SUBNET_RESERVATION_SIZES = range(16, 33)


def _subnet_reservation_create(aws: Aws, inputs: Props) -> str:
    described(aws, EC2_SUBNET, inputs["subnetId"])
    call = {"SubnetId": inputs["subnetId"], "Cidr": inputs["cidrBlock"], "ReservationType": inputs["reservationType"]}
    made = aws.call("ec2", "create_subnet_cidr_reservation", **call)
    return str(made["SubnetCidrReservation"]["SubnetCidrReservationId"])


def _subnet_reservation_read(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    subnet = inputs["subnetId"]
    listed = aws.call("ec2", "get_subnet_cidr_reservations", SubnetId=subnet)[_LISTING]
    if ident not in {each["SubnetCidrReservationId"] for each in listed}:
        raise Refusal("InvalidSubnetCidrReservationID.NotFound", f"{subnet} has no reservation {ident}")
    return {"ownerId": aws.account}


def _subnet_reservation_delete(aws: Aws, ident: str, outputs: Props) -> None:
    aws.call("ec2", "delete_subnet_cidr_reservation", SubnetCidrReservationId=ident)


def _subnet_reservation_complaints(aws: Aws, inputs: Props) -> Iterator[Complaint]:
    yield from block_complaints(inputs, ["cidrBlock"], sizes=_SUBNET_RESERVATION_SIZES)
    yield from beyond(inputs, {"reservationType": Choice(("explicit", "prefix"))})


SUBNET_RESERVATION = Kind(
    token="aws:ec2/subnetCidrReservation:SubnetCidrReservation",
    inputs=replaces("cidrBlock", "description", "reservationType", "subnetId"),
    create=_subnet_reservation_create,
    read=_subnet_reservation_read,
    delete=_subnet_reservation_delete,
    complaints=_subnet_reservation_complaints,
    note="a reservation's description is nowhere to be read",
)
