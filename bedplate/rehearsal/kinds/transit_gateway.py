"""Transit gateways: the hub of a region's networks."""

from collections.abc import Iterator
from typing import Any

from bedplate.rehearsal.kind import Complaint, Kind, Props, replaces, updates
from bedplate.rehearsal.kinds.described import TRANSIT_GATEWAY as NOUN
from bedplate.rehearsal.kinds.described import described
from bedplate.rehearsal.kinds.ec2_tags import born_with, retag
from bedplate.rehearsal.kinds.limits import Choice, beyond
from bedplate.rehearsal.kinds.private_asn import asn_complaints
from bedplate.rehearsal.kinds.transit_tables import live_attachments
from bedplate.rehearsal.placement import structure
from bedplate.rehearsal.refusal import Refusal, Unsupported
from bedplate.rehearsal.simulation import Aws

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
