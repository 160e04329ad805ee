"""Transit gateways: the hub of a region's networks."""

from collections.abc import Iterable, Iterator
from typing import Any

from bedplate.rehearsal.kind import Complaint, Kind, Props, replaces, updates
from bedplate.rehearsal.kinds.ec2 import SUBNET, TRANSIT_ATTACHMENT, VPC, born_with, described, require, retag, tag
from bedplate.rehearsal.kinds.ec2 import TRANSIT_GATEWAY as EC2_TRANSIT_GATEWAY
from bedplate.rehearsal.kinds.ec2 import TRANSIT_GATEWAY as NOUN
from bedplate.rehearsal.kinds.limits import Choice, beyond, undoing
from bedplate.rehearsal.kinds.transit_routes import associations, live_attachments, pair, peering_ends, propagations
from bedplate.rehearsal.kinds.vpn_gateway import asn_complaints
from bedplate.rehearsal.placement import structure
from bedplate.rehearsal.simulation import Aws
from bedplate.rehearsal.state import Refusal, Unsupported

_ASSOCIATES, _PROPAGATES = "defaultRouteTableAssociation", "defaultRouteTablePropagation"
_DEFAULTS = {
    "amazonSideAsn": 64512,
    "autoAcceptSharedAttachments": "disable",
    _ASSOCIATES: "enable",
    _PROPAGATES: "enable",
    "dnsSupport": "enable",
    "multicastSupport": "disable",
    "securityGroupReferencingSupport": "disable",
    "vpnEcmpSupport": "enable",
}
_SWITCHES = tuple(name for name in _DEFAULTS if name != "amazonSideAsn")
_SWITCH = Choice(("enable", "disable"))


def _create(aws: Aws, inputs: Props) -> str:
    words = {"Description": inputs["description"]} if inputs.get("description") else {}
    tags = born_with("transit-gateway", inputs)
    made = aws.call("ec2", "create_transit_gateway", **words, **tags, Options=_options(aws, inputs, _DEFAULTS))
    hub = made["TransitGateway"]
    ident: str = hub["TransitGatewayId"]
    if not _has_default_table(inputs):
        table = hub["Options"]["AssociationDefaultRouteTableId"]
        aws.call("ec2", "delete_transit_gateway_route_table", TransitGatewayRouteTableId=table)
    return ident


def _options(aws: Aws, inputs: Props, names: Props) -> dict[str, Any]:
    given = {name: inputs[name] for name in names if inputs.get(name) is not None}
    shape: Any = aws.shape("ec2", "create_transit_gateway").members["Options"]
    return structure(shape, given, {})


def _has_default_table(inputs: Props) -> bool:
    return "enable" in (inputs.get(_ASSOCIATES), inputs.get(_PROPAGATES))


def _update(aws: Aws, ident: str, old: Props, new: Props) -> None:
    for name in (_ASSOCIATES, _PROPAGATES):
        if (old.get(name), new.get(name)) == ("disable", "enable"):
            raise Unsupported(f"the rehearsal does not model the replacement that turning {name} on is", key=name)
    changed = {name: new[name] for name in _DEFAULTS if new.get(name) != old.get(name)}
    words = {"Description": new["description"]} if new.get("description") else {}
    options = _options(aws, changed, changed)
    aws.call("ec2", "modify_transit_gateway", TransitGatewayId=ident, **words, Options=options)
    retag(aws, ident, old, new)


def _read(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    options = described(aws, NOUN, ident)["Options"]
    associates, propagates = (options[name[0].upper() + name[1:]] for name in (_ASSOCIATES, _PROPAGATES))
    return {
        "amazonSideAsn": int(options["AmazonSideAsn"]),
        "arn": aws.arn("ec2", f"transit-gateway/{ident}"),
        "associationDefaultRouteTableId": options["AssociationDefaultRouteTableId"] if associates == "enable" else "",
        "encryptionSupport": "disable",
        "ownerId": aws.account,
        "propagationDefaultRouteTableId": options["PropagationDefaultRouteTableId"] if propagates == "enable" else "",
    }


def _delete(aws: Aws, ident: str, outputs: Props) -> None:
    described(aws, NOUN, ident)
    if held := live_attachments(aws, ident):
        told = f"{ident} has non-deleted Transit Gateway Attachments: {', '.join(sorted(held))}."
        raise Refusal("IncorrectState", told)
    aws.call("ec2", "delete_transit_gateway", TransitGatewayId=ident)


def _complaints(aws: Aws, inputs: Props) -> Iterator[Complaint]:
    yield from asn_complaints(inputs, "amazonSideAsn")
    yield from beyond(inputs, dict.fromkeys(_SWITCHES, _SWITCH))


TRANSIT_GATEWAY = Kind(
    token="aws:ec2transitgateway/transitGateway:TransitGateway",
    inputs=updates(*_DEFAULTS, "description", "tags") | replaces("multicastSupport"),
    defaults=_DEFAULTS,
    moves=frozenset({"associationDefaultRouteTableId", "propagationDefaultRouteTableId"}),
    create=_create,
    read=_read,
    update=_update,
    delete=_delete,
    complaints=_complaints,
)


_TRANSIT_ATTACHMENT_SWITCHES = {"applianceModeSupport": "disable", "dnsSupport": "enable", "ipv6Support": "disable"}
_REFERENCES = "securityGroupReferencingSupport"
_TRANSIT_ATTACHMENT_ASSOCIATES, _TRANSIT_ATTACHMENT_PROPAGATES = (
    "transitGatewayDefaultRouteTableAssociation",
    "transitGatewayDefaultRouteTablePropagation",
)
# What the provider does about a default table: the gateway's own option, and the calls for in and out.
_MEMBERSHIPS = {
    _TRANSIT_ATTACHMENT_ASSOCIATES: ("Association", associations, "associate_{}", "disassociate_{}"),
    _TRANSIT_ATTACHMENT_PROPAGATES: ("Propagation", propagations, "enable_{}_propagation", "disable_{}_propagation"),
}
_TABLE = "transit_gateway_route_table"


def _transit_attachment_create(aws: Aws, inputs: Props) -> str:
    require(aws, VPC, inputs["vpcId"])
    hub = described(aws, EC2_TRANSIT_GATEWAY, inputs["transitGatewayId"])
    _require_default_tables(hub, inputs)
    _require_subnets(aws, inputs["vpcId"], inputs["subnetIds"])
    ends = {"TransitGatewayId": inputs["transitGatewayId"], "VpcId": inputs["vpcId"]}
    subnets, options = sorted(inputs["subnetIds"]), _transit_attachment_options(aws, inputs)
    made = aws.call("ec2", "create_transit_gateway_vpc_attachment", **ends, SubnetIds=subnets, Options=options)
    ident: str = made["TransitGatewayVpcAttachment"]["TransitGatewayAttachmentId"]
    with undoing(lambda: _transit_attachment_delete(aws, ident, {})):
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


def _transit_attachment_options(aws: Aws, inputs: Props) -> dict[str, Any]:
    given = {name: inputs[name] for name in (*_TRANSIT_ATTACHMENT_SWITCHES, _REFERENCES) if inputs.get(name)}
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


def _transit_attachment_update(aws: Aws, ident: str, old: Props, new: Props) -> None:
    hub = described(aws, EC2_TRANSIT_GATEWAY, new["transitGatewayId"])
    _require_default_tables(hub, new)
    _require_subnets(aws, new["vpcId"], new["subnetIds"])
    before, after = set(old["subnetIds"]), set(new["subnetIds"])
    aws.call(
        "ec2",
        "modify_transit_gateway_vpc_attachment",
        TransitGatewayAttachmentId=ident,
        Options=_transit_attachment_options(aws, new),
        AddSubnetIds=sorted(after - before),
        RemoveSubnetIds=sorted(before - after),
    )
    _bring_interfaces(aws, ident, after)
    _bring_tables(aws, ident, hub, new)
    retag(aws, ident, old, new)


def _transit_attachment_read(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    described(aws, TRANSIT_ATTACHMENT, ident)
    return {
        "arn": aws.arn("ec2", f"transit-gateway-attachment/{ident}"),
        _REFERENCES: inputs.get(_REFERENCES) or "enable",
        "vpcOwnerId": aws.account,
    }


def _transit_attachment_delete(aws: Aws, ident: str, outputs: Props) -> None:
    described(aws, TRANSIT_ATTACHMENT, ident)
    _bring_interfaces(aws, ident, ())
    aws.call("ec2", "delete_transit_gateway_vpc_attachment", TransitGatewayAttachmentId=ident)


def _transit_attachment_complaints(aws: Aws, inputs: Props) -> Iterator[Complaint]:
    yield from beyond(
        inputs, dict.fromkeys((*_TRANSIT_ATTACHMENT_SWITCHES, _REFERENCES), Choice(("enable", "disable")))
    )
    if inputs.get("subnetIds") == []:
        yield Complaint("subnetIds", "is to name at least one subnet")


TRANSIT_VPC_ATTACHMENT = Kind(
    token="aws:ec2transitgateway/vpcAttachment:VpcAttachment",
    inputs=updates(
        *_TRANSIT_ATTACHMENT_SWITCHES,
        _REFERENCES,
        _TRANSIT_ATTACHMENT_ASSOCIATES,
        _TRANSIT_ATTACHMENT_PROPAGATES,
        "subnetIds",
        "tags",
    )
    | replaces("transitGatewayId", "vpcId"),
    defaults={
        **_TRANSIT_ATTACHMENT_SWITCHES,
        _TRANSIT_ATTACHMENT_ASSOCIATES: True,
        _TRANSIT_ATTACHMENT_PROPAGATES: True,
    },
    computed=frozenset({_REFERENCES}),
    sets=frozenset({"subnetIds"}),
    delete_first=True,
    create=_transit_attachment_create,
    read=_transit_attachment_read,
    update=_transit_attachment_update,
    delete=_transit_attachment_delete,
    complaints=_transit_attachment_complaints,
)


def _transit_peering_create(aws: Aws, inputs: Props) -> str:
    near, far = inputs["transitGatewayId"], inputs["peerTransitGatewayId"]
    require(aws, EC2_TRANSIT_GATEWAY, near)
    _require_peer(aws, inputs)
    made = aws.call(
        "ec2",
        "create_transit_gateway_peering_attachment",
        TransitGatewayId=near,
        PeerTransitGatewayId=far,
        PeerAccountId=inputs.get("peerAccountId") or aws.account,
        PeerRegion=inputs["peerRegion"],
    )
    return tag(aws, made["TransitGatewayPeeringAttachment"]["TransitGatewayAttachmentId"], inputs)


def _require_peer(aws: Aws, inputs: Props) -> None:
    if inputs.get("peerAccountId") not in (None, aws.account):
        raise Unsupported("the rehearsal has one account: it cannot peer with another's gateway", key="peerAccountId")
    far = inputs["peerTransitGatewayId"]
    if far == inputs["transitGatewayId"]:
        raise Refusal("InvalidParameterCombination", f"{far} cannot peer with itself", key="peerTransitGatewayId")
    require(aws.elsewhere(inputs["peerRegion"]), EC2_TRANSIT_GATEWAY, far)


def _transit_peering_read(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    found = described(aws, TRANSIT_ATTACHMENT, ident)
    return {
        "arn": aws.arn("ec2", f"transit-gateway-attachment/{ident}"),
        "options": inputs.get("options") or {"dynamicRouting": "disable"},
        "peerAccountId": aws.account,
        "state": found["State"],
    }


def _transit_peering_delete(aws: Aws, ident: str, outputs: Props) -> None:
    described(aws, TRANSIT_ATTACHMENT, ident)
    aws.call("ec2", "delete_transit_gateway_peering_attachment", TransitGatewayAttachmentId=ident)


def _accept(aws: Aws, inputs: Props) -> str:
    ident: str = inputs["transitGatewayAttachmentId"]
    state = described(aws, TRANSIT_ATTACHMENT, ident)["State"]
    _, accepter = peering_ends(aws, ident)
    if accepter["Region"] != aws.region:
        told = f"Cannot accept {ident} as the source of the peering request."
        raise Refusal("InvalidParameterValue", told)
    if state != "pendingAcceptance":
        raise Refusal("IncorrectState", f"{ident} is in invalid state: it is {state}")
    aws.call("ec2", "accept_transit_gateway_peering_attachment", TransitGatewayAttachmentId=ident)
    return tag(aws, ident, inputs)


def _read_accepted(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    """Return the outputs of the accepting end, to which the requester is the peer."""
    described(aws, TRANSIT_ATTACHMENT, ident)
    peer, own = peering_ends(aws, ident)
    return {
        "peerAccountId": peer["OwnerId"],
        "peerRegion": peer["Region"],
        "peerTransitGatewayId": peer["TransitGatewayId"],
        "transitGatewayId": own["TransitGatewayId"],
    }


TRANSIT_PEERING = Kind(
    token="aws:ec2transitgateway/peeringAttachment:PeeringAttachment",
    inputs=updates("tags")
    | replaces("options", "peerAccountId", "peerRegion", "peerTransitGatewayId", "transitGatewayId"),
    computed=frozenset({"options", "peerAccountId"}),
    moves=frozenset({"state"}),
    create=_transit_peering_create,
    read=_transit_peering_read,
    update=retag,
    delete=_transit_peering_delete,
)
TRANSIT_PEERING_ACCEPTER = Kind(
    token="aws:ec2transitgateway/peeringAttachmentAccepter:PeeringAttachmentAccepter",
    inputs=updates("tags") | replaces("transitGatewayAttachmentId"),
    create=_accept,
    read=_read_accepted,
    update=retag,
    # The provider deletes the peering itself: AWS has no way back to a request.
    delete=_transit_peering_delete,
)
