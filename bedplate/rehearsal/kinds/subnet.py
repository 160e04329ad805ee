"""Subnets."""

from collections.abc import Iterator
from typing import Any

from bedplate.rehearsal.kind import Complaint, Kind, Props, replaces, updates
from bedplate.rehearsal.kinds.cidr_blocks import block_complaints
from bedplate.rehearsal.kinds.described import SUBNET as NOUN
from bedplate.rehearsal.kinds.described import described
from bedplate.rehearsal.kinds.ec2_tags import retag
from bedplate.rehearsal.kinds.interfaces import interfaces_of
from bedplate.rehearsal.kinds.limits import together
from bedplate.rehearsal.placement import placed
from bedplate.rehearsal.refusal import Refusal
from bedplate.rehearsal.simulation import Aws

# Attributes that have a call of their own.
_ATTRIBUTES = {
    "mapPublicIpOnLaunch": "MapPublicIpOnLaunch",
    "enableResourceNameDnsARecordOnLaunch": "EnableResourceNameDnsARecordOnLaunch",
}
# What moto has no place for; the provider fills in that it is off.
_UNMODELLED = ("assignIpv6AddressOnCreation", "enableDns64", "enableResourceNameDnsAaaaRecordOnLaunch")
_ZONES = ("availabilityZone", "availabilityZoneId")
_SIZES = range(16, 29)  # Amazon VPC user guide, "Subnet CIDR blocks"


def _create(aws: Aws, inputs: Props) -> str:
    zone = _zone(aws, inputs)
    given = {**inputs, "availabilityZone": zone}
    apart = (*_ATTRIBUTES, *_UNMODELLED, "availabilityZoneId", "ipv6Native", "tags")
    made = aws.call("ec2", "create_subnet", **placed(aws, ("ec2", "create_subnet"), given, apart=apart))
    ident: str = made["Subnet"]["SubnetId"]
    _update(aws, ident, {}, inputs)
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


def _update(aws: Aws, ident: str, old: Props, new: Props) -> None:
    for name, parameter in _ATTRIBUTES.items():
        if bool(old.get(name)) != bool(new.get(name)):
            aws.call(
                "ec2",
                "modify_subnet_attribute",
                SubnetId=ident,
                **{parameter: {"Value": bool(new.get(name))}},
            )
    retag(aws, ident, old, new)


def _read(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    found = described(aws, NOUN, ident)
    return {
        "arn": aws.arn("ec2", f"subnet/{ident}"),
        "availabilityZone": found["AvailabilityZone"],
        "availabilityZoneId": found["AvailabilityZoneId"],
        "cidrBlock": found["CidrBlock"],
        "ownerId": aws.account,
        "privateDnsHostnameTypeOnLaunch": "ip-name",
    }


def _delete(aws: Aws, ident: str, outputs: Props) -> None:
    if interfaces_of(aws, "subnet-id", ident):
        raise Refusal("DependencyViolation", f"The subnet '{ident}' has dependencies and cannot be deleted.")
    aws.call("ec2", "delete_subnet", SubnetId=ident)


def _complaints(aws: Aws, inputs: Props) -> Iterator[Complaint]:
    yield from block_complaints(inputs, ["cidrBlock"], sizes=_SIZES)
    if not inputs.get("cidrBlock"):
        yield Complaint("cidrBlock", "is missing: the rehearsal has no subnets without an IPv4 block")
    yield from together(inputs, *_ZONES)
    for name in (*_UNMODELLED, "ipv6Native"):
        if inputs.get(name):
            yield Complaint(name, "is an input that the rehearsal has no place for")


SUBNET = Kind(
    token="aws:ec2/subnet:Subnet",
    inputs=updates(*_ATTRIBUTES, *_UNMODELLED, "tags") | replaces(*_ZONES, "cidrBlock", "ipv6Native", "vpcId"),
    defaults=dict.fromkeys((*_ATTRIBUTES, *_UNMODELLED, "ipv6Native"), False),
    computed=frozenset(_ZONES),
    create=_create,
    read=_read,
    update=_update,
    delete=_delete,
    complaints=_complaints,
)
