"""Route tables, and the table that a VPC was born with."""

from collections.abc import Iterator
from typing import Any

from bedplate.rehearsal.kind import Complaint, Kind, Props, replaces, updates
from bedplate.rehearsal.kinds.described import ROUTE_TABLE as NOUN
from bedplate.rehearsal.kinds.described import VPN_GATEWAY, described
from bedplate.rehearsal.kinds.ec2_tags import retag
from bedplate.rehearsal.kinds.routes import bring_paths, path_of, route_faults
from bedplate.rehearsal.kinds.undoing import undoing
from bedplate.rehearsal.refusal import Refusal
from bedplate.rehearsal.simulation import Aws
from bedplate.rehearsal.unknown import UNKNOWN

_NOTE = "moto has no route propagation: gateways are checked, their routes never appear"


def _create(aws: Aws, inputs: Props) -> str:
    ident: str = aws.call("ec2", "create_route_table", VpcId=inputs["vpcId"])["RouteTable"]["RouteTableId"]
    with undoing(lambda: aws.call("ec2", "delete_route_table", RouteTableId=ident)):
        _update(aws, ident, {}, inputs)
    return ident


def _adopt(aws: Aws, inputs: Props) -> str:
    """Take over a VPC's first table, with the routes that are named and no others."""
    ident: str = inputs["defaultRouteTableId"]
    described(aws, NOUN, ident)
    _update(aws, ident, {}, {"routes": [], **inputs})
    return ident


def _update(aws: Aws, ident: str, old: Props, new: Props) -> None:
    _require_gateways(aws, ident, new.get("propagatingVgws") or [])
    # Routes left out are others' business; an empty list means none.
    if new.get("routes") is not None and old.get("routes") != new["routes"]:
        bring_paths(aws, ident, [path_of(route) for route in new["routes"]])
    retag(aws, ident, old, new)


def _require_gateways(aws: Aws, ident: str, gateways: list[str]) -> None:
    vpc = described(aws, NOUN, ident)["VpcId"] if gateways else ""
    for gateway in gateways:
        attached = described(aws, VPN_GATEWAY, gateway)["VpcAttachments"]
        if not any(each["VpcId"] == vpc and each["State"] == "attached" for each in attached):
            raise Refusal("Gateway.NotAttached", f"resource {gateway} is not attached to network {vpc}")


def _read(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    return {
        "arn": aws.arn("ec2", f"route-table/{ident}"),
        "ownerId": aws.account,
        "vpcId": described(aws, NOUN, ident)["VpcId"],
    }


def _delete(aws: Aws, ident: str, outputs: Props) -> None:
    aws.call("ec2", "delete_route_table", RouteTableId=ident)


def _leave(aws: Aws, ident: str, outputs: Props) -> None:
    """Leave the table as it is: it goes with its VPC."""


def _complaints(aws: Aws, inputs: Props) -> Iterator[Complaint]:
    routes = inputs.get("routes")
    for number, route in enumerate(routes if isinstance(routes, list) else []):
        faults = route_faults(route) if route is not UNKNOWN else ()
        yield from (Complaint(f"routes[{number}]", fault) for fault in faults)


ROUTE_TABLE = Kind(
    token="aws:ec2/routeTable:RouteTable",
    inputs=updates("propagatingVgws", "routes", "tags") | replaces("vpcId"),
    computed=frozenset({"propagatingVgws", "routes"}),
    sets=frozenset({"propagatingVgws", "routes"}),
    create=_create,
    read=_read,
    update=_update,
    delete=_delete,
    complaints=_complaints,
    note=_NOTE,
)
DEFAULT_ROUTE_TABLE = Kind(
    token="aws:ec2/defaultRouteTable:DefaultRouteTable",
    inputs=updates("propagatingVgws", "routes", "tags") | replaces("defaultRouteTableId"),
    computed=frozenset({"routes"}),
    sets=frozenset({"propagatingVgws", "routes"}),
    create=_adopt,
    read=_read,
    update=_update,
    delete=_leave,
    complaints=_complaints,
    note=_NOTE,
)
