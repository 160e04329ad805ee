"""Attachments of VPCs to transit gateways, with the interface that each has in every zone it serves."""

from collections.abc import Iterable, Iterator
from typing import Any

from bedplate.rehearsal.kind import Complaint, Kind, Props, replaces, updates
from bedplate.rehearsal.kinds.described import SUBNET, TRANSIT_ATTACHMENT, TRANSIT_GATEWAY, VPC, described, require
from bedplate.rehearsal.kinds.ec2_tags import retag, tag
from bedplate.rehearsal.kinds.limits import Choice, beyond
from bedplate.rehearsal.kinds.transit_membership import pair
from bedplate.rehearsal.kinds.transit_tables import associations, propagations
from bedplate.rehearsal.kinds.undoing import undoing
from bedplate.rehearsal.placement import structure
from bedplate.rehearsal.refusal import Refusal
from bedplate.rehearsal.simulation import Aws

_SWITCHES = {"applianceModeSupport": "disable", "dnsSupport": "enable", "ipv6Support": "disable"}
_REFERENCES = "securityGroupReferencingSupport"
_ASSOCIATES, _PROPAGATES = "transitGatewayDefaultRouteTableAssociation", "transitGatewayDefaultRouteTablePropagation"
# What the provider does about a default table: the gateway's own option, and the calls for in and out.
_MEMBERSHIPS = {
    _ASSOCIATES: ("Association", associations, "associate_{}", "disassociate_{}"),
    _PROPAGATES: ("Propagation", propagations, "enable_{}_propagation", "disable_{}_propagation"),
}
_TABLE = "transit_gateway_route_table"


def _create(aws: Aws, inputs: Props) -> str:
    require(aws, VPC, inputs["vpcId"])
    hub = described(aws, TRANSIT_GATEWAY, inputs["transitGatewayId"])
    _require_default_tables(hub, inputs)
    _require_subnets(aws, inputs["vpcId"], inputs["subnetIds"])
    ends = {"TransitGatewayId": inputs["transitGatewayId"], "VpcId": inputs["vpcId"]}
    subnets, options = sorted(inputs["subnetIds"]), _options(aws, inputs)
    made = aws.call("ec2", "create_transit_gateway_vpc_attachment", **ends, SubnetIds=subnets, Options=options)
    ident: str = made["TransitGatewayVpcAttachment"]["TransitGatewayAttachmentId"]
    with undoing(lambda: _delete(aws, ident, {})):
        _bring_interfaces(aws, ident, subnets)
        _bring_tables(aws, ident, hub, inputs)
    return tag(aws, ident, inputs)


def _require_default_tables(hub: dict[str, Any], inputs: Props) -> None:
    """Refuse what the provider would change at every run: membership in a default table that the gateway lacks."""
    for name, (word, *_) in _MEMBERSHIPS.items():
        if inputs.get(name) and hub["Options"][f"DefaultRouteTable{word}"] == "disable":
            told = f"{name} is to be false: {hub['TransitGatewayId']} has none, and each run would show a change"
            raise Refusal("InvalidInput", told, key=name)


def _require_subnets(aws: Aws, vpc: str, subnets: Iterable[str]) -> None:
    zones: set[str] = set()
    for ident in subnets:
        found = described(aws, SUBNET, ident)
        if found["VpcId"] != vpc:
            raise Refusal("InvalidParameterValue", f"The subnet {ident} is not in {vpc}", key="subnetIds")
        if found["AvailabilityZone"] in zones:
            told = f"Duplicate Subnets for same AZ: {found['AvailabilityZone']}"
            raise Refusal("DuplicateSubnetsInSameZone", told, key="subnetIds")
        zones.add(found["AvailabilityZone"])


def _options(aws: Aws, inputs: Props) -> dict[str, Any]:
    given = {name: inputs[name] for name in (*_SWITCHES, _REFERENCES) if inputs.get(name)}
    shape: Any = aws.shape("ec2", "create_transit_gateway_vpc_attachment").members["Options"]
    return structure(shape, given, {})


def _interfaces(aws: Aws, attachment: str) -> dict[str, str]:
    """Return the attachment's interfaces: subnet -> interface."""
    ours = [{"Name": "description", "Values": [_label(attachment)]}]
    listed = aws.call("ec2", "describe_network_interfaces", Filters=ours)["NetworkInterfaces"]
    return {each["SubnetId"]: each["NetworkInterfaceId"] for each in listed}


def _label(attachment: str) -> str:
    return f"Network Interface for Transit Gateway Attachment {attachment}"


def _bring_interfaces(aws: Aws, attachment: str, subnets: Iterable[str]) -> None:
    """Make an attachment have one interface in each of some subnets: what holds them from being deleted."""
    there, wanted = _interfaces(aws, attachment), set(subnets)
    for subnet in sorted(wanted - there.keys()):
        aws.call("ec2", "create_network_interface", SubnetId=subnet, Description=_label(attachment))
    for subnet in sorted(there.keys() - wanted):
        aws.call("ec2", "delete_network_interface", NetworkInterfaceId=there[subnet])


def _bring_tables(aws: Aws, attachment: str, hub: dict[str, Any], inputs: Props) -> None:
    """Put an attachment into its gateway's default tables, or take it out, as the inputs say."""
    for name, (word, members, enter, leave) in _MEMBERSHIPS.items():
        if hub["Options"][f"DefaultRouteTable{word}"] == "disable":
            continue
        table = hub["Options"][f"{word}DefaultRouteTableId"]
        inside, wanted = attachment in members(aws, table), bool(inputs.get(name))
        if inside != wanted:
            aws.call("ec2", (enter if wanted else leave).format(_TABLE), **pair(table, attachment))


def _update(aws: Aws, ident: str, old: Props, new: Props) -> None:
    hub = described(aws, TRANSIT_GATEWAY, new["transitGatewayId"])
    _require_default_tables(hub, new)
    _require_subnets(aws, new["vpcId"], new["subnetIds"])
    before, after = set(old["subnetIds"]), set(new["subnetIds"])
    aws.call(
        "ec2",
        "modify_transit_gateway_vpc_attachment",
        TransitGatewayAttachmentId=ident,
        Options=_options(aws, new),
        AddSubnetIds=sorted(after - before),
        RemoveSubnetIds=sorted(before - after),
    )
    _bring_interfaces(aws, ident, after)
    _bring_tables(aws, ident, hub, new)
    retag(aws, ident, old, new)


def _read(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    described(aws, TRANSIT_ATTACHMENT, ident)
    return {
        "arn": aws.arn("ec2", f"transit-gateway-attachment/{ident}"),
        _REFERENCES: inputs.get(_REFERENCES) or "enable",
        "vpcOwnerId": aws.account,
    }


def _delete(aws: Aws, ident: str, outputs: Props) -> None:
    described(aws, TRANSIT_ATTACHMENT, ident)
    _bring_interfaces(aws, ident, ())
    aws.call("ec2", "delete_transit_gateway_vpc_attachment", TransitGatewayAttachmentId=ident)


def _complaints(aws: Aws, inputs: Props) -> Iterator[Complaint]:
    yield from beyond(inputs, dict.fromkeys((*_SWITCHES, _REFERENCES), Choice(("enable", "disable"))))
    if inputs.get("subnetIds") == []:
        yield Complaint("subnetIds", "is to name at least one subnet")


TRANSIT_VPC_ATTACHMENT = Kind(
    token="aws:ec2transitgateway/vpcAttachment:VpcAttachment",
    inputs=updates(*_SWITCHES, _REFERENCES, _ASSOCIATES, _PROPAGATES, "subnetIds", "tags")
    | replaces("transitGatewayId", "vpcId"),
    defaults={**_SWITCHES, _ASSOCIATES: True, _PROPAGATES: True},
    computed=frozenset({_REFERENCES}),
    sets=frozenset({"subnetIds"}),
    delete_first=True,
    create=_create,
    read=_read,
    update=_update,
    delete=_delete,
    complaints=_complaints,
)
