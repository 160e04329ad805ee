"""Transit gateways, their VPC attachments, and peering attachments with other regions."""

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

from bedplate.rehearsal.kind import InvalidInput, Props, ResourceKind, capitalized, replaces, updates
from bedplate.rehearsal.kinds import ec2
from bedplate.rehearsal.kinds.calls import aws_names, call_parameters, renamed
from bedplate.rehearsal.kinds.limits import Choice, checks, rollback
from bedplate.rehearsal.kinds.transit_routes import associations, live_attachments, pair, peering_ends, propagations
from bedplate.rehearsal.kinds.vpn import check_private_asn
from bedplate.rehearsal.simulation import Aws
from bedplate.rehearsal.state import ResourceError, UnsupportedError

# --- Transit gateways

_ASSOCIATES, _PROPAGATES = "defaultRouteTableAssociation", "defaultRouteTablePropagation"
_DEFAULTS = {
    "amazonSideAsn": 64512,
    "autoAcceptSharedAttachments": "disable",
    _ASSOCIATES: "enable",
    _PROPAGATES: "enable",
    "dnsSupport": "enable",
    "securityGroupReferencingSupport": "disable",
    "vpnEcmpSupport": "enable",
}
_SWITCH_INPUTS = tuple(name for name in _DEFAULTS if name != "amazonSideAsn")
_SWITCH = Choice(("enable", "disable"))


def _create_gateway(aws: Aws, inputs: Props) -> str:
    more = renamed(inputs, aws_names("description")) | ec2.tag_specifications("transit-gateway", inputs)
    options = _options(aws, "create_transit_gateway", inputs, _DEFAULTS)
    response = aws.call("ec2", "create_transit_gateway", **more, Options=options)
    gateway = response["TransitGateway"]
    ident: str = gateway["TransitGatewayId"]
    if "enable" not in (inputs.get(_ASSOCIATES), inputs.get(_PROPAGATES)):
        table = gateway["Options"]["AssociationDefaultRouteTableId"]
        aws.call("ec2", "delete_transit_gateway_route_table", TransitGatewayRouteTableId=table)
    return ident


def _options(aws: Aws, operation: str, inputs: Props, names: Iterable[str]) -> dict[str, Any]:
    """Return the inputs of these names as the options in a call of EC2."""
    options = {name: inputs.get(name) for name in names}
    return dict(call_parameters(aws, ("ec2", operation), {"options": options})["Options"])


def _read_gateway(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    options = ec2.described(aws, ec2.TRANSIT_GATEWAY, ident)["Options"]
    associates, propagates = (options[capitalized(name)] for name in (_ASSOCIATES, _PROPAGATES))
    return {
        "amazonSideAsn": int(options["AmazonSideAsn"]),
        "arn": aws.arn("ec2", f"transit-gateway/{ident}"),
        "associationDefaultRouteTableId": options["AssociationDefaultRouteTableId"] if associates == "enable" else "",
        "encryptionSupport": "disable",
        "ownerId": aws.account,
        "propagationDefaultRouteTableId": options["PropagationDefaultRouteTableId"] if propagates == "enable" else "",
    }


def _update_gateway(aws: Aws, ident: str, old: Props, new: Props) -> None:
    for name in (_ASSOCIATES, _PROPAGATES):
        if (old.get(name), new.get(name)) == ("disable", "enable"):
            raise UnsupportedError(
                f"the rehearsal does not model turning {name} on, which replaces the gateway", key=name
            )
    options = _options(aws, "create_transit_gateway", new, (key for key in _DEFAULTS if new.get(key) != old.get(key)))
    description = renamed(new, aws_names("description"))
    aws.call("ec2", "modify_transit_gateway", TransitGatewayId=ident, **description, Options=options)
    ec2.retag(aws, ident, old, new)


def _delete_gateway(aws: Aws, ident: str, outputs: Props) -> None:
    ec2.described(aws, ec2.TRANSIT_GATEWAY, ident)
    if attachments := live_attachments(aws, ident):
        message = f"{ident} has non-deleted Transit Gateway Attachments: {', '.join(sorted(attachments))}."
        raise ResourceError("IncorrectState", message)
    aws.call("ec2", "delete_transit_gateway", TransitGatewayId=ident)


TRANSIT_GATEWAY = ResourceKind(
    token="aws:ec2transitgateway/transitGateway:TransitGateway",
    inputs=updates(*_DEFAULTS, "description", "tags"),
    defaults=_DEFAULTS,
    changed_by_update=frozenset({"associationDefaultRouteTableId", "propagationDefaultRouteTableId"}),
    create=_create_gateway,
    read=_read_gateway,
    update=_update_gateway,
    delete=_delete_gateway,
    complaints=checks(dict.fromkeys(_SWITCH_INPUTS, _SWITCH), partial(check_private_asn, key="amazonSideAsn")),
)


# --- VPC attachments

_ATTACHMENT_DEFAULTS = {"applianceModeSupport": "disable", "dnsSupport": "enable", "ipv6Support": "disable"}
_GROUP_REFERENCES = "securityGroupReferencingSupport"
_ATTACHMENT_SWITCHES = (*_ATTACHMENT_DEFAULTS, _GROUP_REFERENCES)
_ASSOCIATED, _PROPAGATED = (f"transitGatewayDefaultRouteTable{use}" for use in ("Association", "Propagation"))
# Input -> option of the gateway, function that lists members, and calls to join and leave the default table.
_DEFAULT_TABLES = {
    _ASSOCIATED: ("Association", associations, "associate_{}", "disassociate_{}"),
    _PROPAGATED: ("Propagation", propagations, "enable_{}_propagation", "disable_{}_propagation"),
}
_TABLE = "transit_gateway_route_table"


def _check_attachment(inputs: Props) -> Iterator[InvalidInput]:
    if inputs.get("subnetIds") == []:
        yield InvalidInput("subnetIds", "must have at least one subnet")


def _create_attachment(aws: Aws, inputs: Props) -> str:
    ec2.require(aws, ec2.VPC, inputs["vpcId"])
    gateway = ec2.described(aws, ec2.TRANSIT_GATEWAY, inputs["transitGatewayId"])
    _require_matching_tables(gateway, inputs)
    _require_subnets(aws, inputs["vpcId"], inputs["subnetIds"])
    target = {"TransitGatewayId": inputs["transitGatewayId"], "VpcId": inputs["vpcId"]}
    operation, subnets = "create_transit_gateway_vpc_attachment", sorted(inputs["subnetIds"])
    options = _options(aws, operation, inputs, _ATTACHMENT_SWITCHES)
    response = aws.call("ec2", operation, **target, SubnetIds=subnets, Options=options)
    ident: str = response["TransitGatewayVpcAttachment"]["TransitGatewayAttachmentId"]
    with rollback(lambda: _delete_attachment(aws, ident, {})):
        _set_interfaces(aws, ident, subnets)
        _set_tables(aws, ident, gateway, inputs)
    return ec2.tag(aws, ident, inputs)


def _require_matching_tables(gateway: dict[str, Any], inputs: Props) -> None:
    """Raise ResourceError for a default table that the gateway lacks: the provider would show a change in every run."""
    for name, (table_use, *_) in _DEFAULT_TABLES.items():
        if inputs.get(name) and gateway["Options"][f"DefaultRouteTable{table_use}"] == "disable":
            message = f"{name} must be false: {gateway['TransitGatewayId']} has no default table"
            raise ResourceError("InvalidInput", message, key=name)


def _require_subnets(aws: Aws, vpc: str, subnets: Iterable[str]) -> None:
    zones: set[str] = set()
    for ident in subnets:
        subnet = ec2.described(aws, ec2.SUBNET, ident)
        if subnet["VpcId"] != vpc:
            raise ResourceError("InvalidParameterValue", f"The subnet {ident} is not in {vpc}", key="subnetIds")
        if subnet["AvailabilityZone"] in zones:
            message = f"Duplicate Subnets for same AZ: {subnet['AvailabilityZone']}"
            raise ResourceError("DuplicateSubnetsInSameZone", message, key="subnetIds")
        zones.add(subnet["AvailabilityZone"])


def _set_interfaces(aws: Aws, attachment: str, subnets: Iterable[str]) -> None:
    """Create and delete interfaces until an attachment has one in each subnet; they block the deletion of subnets."""
    existing, desired = _interfaces(aws, attachment), set(subnets)
    for subnet in sorted(desired - existing.keys()):
        aws.call("ec2", "create_network_interface", SubnetId=subnet, Description=_interface_description(attachment))
    for subnet in sorted(existing.keys() - desired):
        aws.call("ec2", "delete_network_interface", NetworkInterfaceId=existing[subnet])


def _interfaces(aws: Aws, attachment: str) -> dict[str, str]:
    """Return the interfaces of an attachment by subnet."""
    interfaces = ec2.matching(aws, ec2.NETWORK_INTERFACE, {"description": _interface_description(attachment)})
    return {interface["SubnetId"]: interface["NetworkInterfaceId"] for interface in interfaces}


def _interface_description(attachment: str) -> str:
    return f"Network Interface for Transit Gateway Attachment {attachment}"


def _set_tables(aws: Aws, attachment: str, gateway: dict[str, Any], inputs: Props) -> None:
    """Join or leave the default tables of the gateway, as the inputs say."""
    for name, (table_use, members, join, leave) in _DEFAULT_TABLES.items():
        if gateway["Options"][f"DefaultRouteTable{table_use}"] == "disable":
            continue
        table = gateway["Options"][f"{table_use}DefaultRouteTableId"]
        is_member, should_be_member = attachment in members(aws, table), bool(inputs.get(name))
        if is_member != should_be_member:
            aws.call("ec2", (join if should_be_member else leave).format(_TABLE), **pair(table, attachment))


def _read_attachment(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    ec2.described(aws, ec2.TRANSIT_ATTACHMENT, ident)
    return {
        "arn": aws.arn("ec2", f"transit-gateway-attachment/{ident}"),
        _GROUP_REFERENCES: inputs.get(_GROUP_REFERENCES) or "enable",
        "vpcOwnerId": aws.account,
    }


def _update_attachment(aws: Aws, ident: str, old: Props, new: Props) -> None:
    gateway = ec2.described(aws, ec2.TRANSIT_GATEWAY, new["transitGatewayId"])
    _require_matching_tables(gateway, new)
    _require_subnets(aws, new["vpcId"], new["subnetIds"])
    before, after = set(old["subnetIds"]), set(new["subnetIds"])
    operation = "modify_transit_gateway_vpc_attachment"
    aws.call(
        "ec2",
        operation,
        TransitGatewayAttachmentId=ident,
        Options=_options(aws, operation, new, _ATTACHMENT_SWITCHES),
        AddSubnetIds=sorted(after - before),
        RemoveSubnetIds=sorted(before - after),
    )
    _set_interfaces(aws, ident, after)
    _set_tables(aws, ident, gateway, new)
    ec2.retag(aws, ident, old, new)


def _delete_attachment(aws: Aws, ident: str, outputs: Props) -> None:
    ec2.described(aws, ec2.TRANSIT_ATTACHMENT, ident)
    _set_interfaces(aws, ident, ())
    aws.call("ec2", "delete_transit_gateway_vpc_attachment", TransitGatewayAttachmentId=ident)


TRANSIT_VPC_ATTACHMENT = ResourceKind(
    token="aws:ec2transitgateway/vpcAttachment:VpcAttachment",
    inputs=updates(*_ATTACHMENT_SWITCHES, *_DEFAULT_TABLES, "subnetIds", "tags")
    | replaces("transitGatewayId", "vpcId"),
    defaults={**_ATTACHMENT_DEFAULTS, **dict.fromkeys(_DEFAULT_TABLES, True)},
    computed=frozenset({_GROUP_REFERENCES}),
    sets=frozenset({"subnetIds"}),
    delete_first=True,
    create=_create_attachment,
    read=_read_attachment,
    update=_update_attachment,
    delete=_delete_attachment,
    complaints=checks(dict.fromkeys(_ATTACHMENT_SWITCHES, _SWITCH), _check_attachment),
)


# --- Peering attachments


def _create_peering(aws: Aws, inputs: Props) -> str:
    requester, accepter = inputs["transitGatewayId"], inputs["peerTransitGatewayId"]
    ec2.require(aws, ec2.TRANSIT_GATEWAY, requester)
    _require_peer(aws, inputs)
    response = aws.call(
        "ec2",
        "create_transit_gateway_peering_attachment",
        TransitGatewayId=requester,
        PeerTransitGatewayId=accepter,
        PeerAccountId=aws.account,
        PeerRegion=inputs["peerRegion"],
    )
    return ec2.tag(aws, response["TransitGatewayPeeringAttachment"]["TransitGatewayAttachmentId"], inputs)


def _require_peer(aws: Aws, inputs: Props) -> None:
    peer = inputs["peerTransitGatewayId"]
    if peer == inputs["transitGatewayId"]:
        raise ResourceError(
            "InvalidParameterCombination", f"{peer} cannot peer with itself", key="peerTransitGatewayId"
        )
    ec2.require(aws.in_region(inputs["peerRegion"]), ec2.TRANSIT_GATEWAY, peer)


def _create_accepter(aws: Aws, inputs: Props) -> str:
    ident: str = inputs["transitGatewayAttachmentId"]
    state = ec2.described(aws, ec2.TRANSIT_ATTACHMENT, ident)["State"]
    _, accepter = peering_ends(aws, ident)
    if accepter["Region"] != aws.region:
        message = f"Cannot accept {ident} as the source of the peering request."
        raise ResourceError("InvalidParameterValue", message)
    if state != "pendingAcceptance":
        raise ResourceError("IncorrectState", f"{ident} is in invalid state {state}")
    aws.call("ec2", "accept_transit_gateway_peering_attachment", TransitGatewayAttachmentId=ident)
    return ec2.tag(aws, ident, inputs)


def _read_peering(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    attachment = ec2.described(aws, ec2.TRANSIT_ATTACHMENT, ident)
    return {
        "arn": aws.arn("ec2", f"transit-gateway-attachment/{ident}"),
        "options": {"dynamicRouting": "disable"},
        "peerAccountId": aws.account,
        "state": attachment["State"],
    }


def _read_accepter(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    """Return the outputs of the accepter, whose peer is the requester."""
    ec2.described(aws, ec2.TRANSIT_ATTACHMENT, ident)
    peer, own = peering_ends(aws, ident)
    return {
        "peerAccountId": peer["OwnerId"],
        "peerRegion": peer["Region"],
        "peerTransitGatewayId": peer["TransitGatewayId"],
        "transitGatewayId": own["TransitGatewayId"],
    }


def _delete_peering(aws: Aws, ident: str, outputs: Props) -> None:
    ec2.described(aws, ec2.TRANSIT_ATTACHMENT, ident)
    aws.call("ec2", "delete_transit_gateway_peering_attachment", TransitGatewayAttachmentId=ident)


TRANSIT_PEERING = ResourceKind(
    token="aws:ec2transitgateway/peeringAttachment:PeeringAttachment",
    inputs=updates("tags") | replaces("peerRegion", "peerTransitGatewayId", "transitGatewayId"),
    changed_by_update=frozenset({"state"}),
    create=_create_peering,
    read=_read_peering,
    update=ec2.retag,
    delete=_delete_peering,
)
TRANSIT_PEERING_ACCEPTER = ResourceKind(
    token="aws:ec2transitgateway/peeringAttachmentAccepter:PeeringAttachmentAccepter",
    inputs=updates("tags") | replaces("transitGatewayAttachmentId"),
    create=_create_accepter,
    read=_read_accepter,
    update=ec2.retag,
    # The provider deletes the peering: AWS cannot undo the acceptance.
    delete=_delete_peering,
)
