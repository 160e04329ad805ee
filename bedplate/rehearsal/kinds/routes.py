"""VPC routes, route tables and their associations. A route is a resource, never a block inside a route table."""

import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from ipaddress import ip_network
from typing import Any

from bedplate.rehearsal.kind import InvalidInput, Props, ResourceKind, delete_nothing, replaces, updates
from bedplate.rehearsal.kinds import ec2
from bedplate.rehearsal.kinds.calls import aws_names, deletes
from bedplate.rehearsal.kinds.limits import check_required, checks
from bedplate.rehearsal.simulation import Aws
from bedplate.rehearsal.state import ResourceError

_DESTINATION = "DestinationCidrBlock"
TARGETS = aws_names("gatewayId", "natGatewayId", "networkInterfaceId", "transitGatewayId", "vpcPeeringConnectionId")
# The only targets of routes inside the blocks of the VPC: VPC user guide, "Middlebox routing".
_MIDDLEBOXES = frozenset({"NatGatewayId", "NetworkInterfaceId"})


@dataclass(frozen=True, slots=True)
class Route:
    """A route to a block; its target is a parameter of EC2, (name, value)."""

    block: str
    target: tuple[str, str]


@dataclass(frozen=True, slots=True)
class _Target:
    """A type of route target, and a function that returns the VPCs that can use it."""

    resource: ec2.Ec2Resource
    networks: Callable[[Aws, dict[str, Any]], Iterable[str]]


def _own_network(aws: Aws, target: dict[str, Any]) -> Iterable[str]:
    return (target["VpcId"],)


def _attached_networks(aws: Aws, gateway: dict[str, Any]) -> Iterable[str]:
    attachments = [*gateway.get("Attachments", []), *gateway.get("VpcAttachments", [])]
    return [attachment["VpcId"] for attachment in attachments if attachment["State"] in ("available", "attached")]


def _peered_networks(aws: Aws, peering: dict[str, Any]) -> Iterable[str]:
    return (peering["RequesterVpcInfo"]["VpcId"], peering["AccepterVpcInfo"]["VpcId"])


def _transit_networks(aws: Aws, gateway: dict[str, Any]) -> Iterable[str]:
    filters = {"resource-type": "vpc", "transit-gateway-id": gateway["TransitGatewayId"]}
    attachments = ec2.matching(aws, ec2.TRANSIT_ATTACHMENT, filters)
    return [attachment["ResourceId"] for attachment in attachments if attachment["State"] == "available"]


_BY_PARAMETER = {
    "NatGatewayId": _Target(ec2.NAT_GATEWAY, _own_network),
    "NetworkInterfaceId": _Target(ec2.NETWORK_INTERFACE, _own_network),
    "TransitGatewayId": _Target(ec2.TRANSIT_GATEWAY, _transit_networks),
    "VpcPeeringConnectionId": _Target(ec2.PEERING, _peered_networks),
}
_BY_PREFIX = {
    "igw": _Target(ec2.INTERNET_GATEWAY, _attached_networks),
    "vgw": _Target(ec2.VPN_GATEWAY, _attached_networks),
}


def custom_routes(table: Mapping[str, Any]) -> tuple[Route, ...]:
    """Return the routes of a described table without local routes and endpoint routes, which AWS manages."""
    return tuple(
        # A route to a deleted target has none.
        Route(
            route[_DESTINATION],
            next(((name, str(route[name])) for name in TARGETS.values() if route.get(name)), ("", "")),
        )
        for route in table["Routes"]
        if route["Origin"] == "CreateRoute" and not str(route.get("GatewayId", "")).startswith("vpce-")
    )


def add_route(aws: Aws, table_id: str, route: Route) -> None:
    """Add a route; raise ResourceError if it exists, or if its target does not exist or is in another VPC."""
    description = ec2.described(aws, ec2.ROUTE_TABLE, table_id)
    _require_new_destination(description, route)
    _require_target(aws, description, route)
    aws.call("ec2", "create_route", RouteTableId=table_id, DestinationCidrBlock=route.block, **dict([route.target]))


def delete_route(aws: Aws, table_id: str, route: Route) -> None:
    """Delete a route."""
    aws.call("ec2", "delete_route", RouteTableId=table_id, DestinationCidrBlock=route.block)


def _require_new_destination(table: Mapping[str, Any], new_route: Route) -> None:
    block = new_route.block
    if any(route.get(_DESTINATION) == block for route in table["Routes"]):
        raise ResourceError("RouteAlreadyExists", f"The route identified by {block} already exists.")
    local_blocks = [route[_DESTINATION] for route in table["Routes"] if route.get("GatewayId") == "local"]
    if new_route.target[0] not in _MIDDLEBOXES and _is_within(block, local_blocks):
        message = f"The destination CIDR block {block} is equal to or more specific than one of this VPC's CIDR blocks."
        raise ResourceError(
            "InvalidParameterValue", f"{message} This route can target only an interface or an instance."
        )


def _is_within(block: str, others: Iterable[str]) -> bool:
    network = ip_network(block)
    return any(network.subnet_of(ip_network(other)) for other in others)  # type: ignore[arg-type]  # both are IPv4


def _require_target(aws: Aws, table: Mapping[str, Any], route: Route) -> None:
    parameter, ident = route.target
    target = _BY_PARAMETER.get(parameter) or _BY_PREFIX.get(ident.partition("-")[0])
    if target is None:
        raise ResourceError("InvalidGatewayID.NotFound", f"The gateway ID '{ident}' does not exist")
    if table["VpcId"] not in target.networks(aws, ec2.described(aws, target.resource, ident)):
        # For a transit gateway without an attachment in the VPC, AWS returns the error for an unknown id.
        if target.resource is ec2.TRANSIT_GATEWAY:
            raise ResourceError(ec2.TRANSIT_GATEWAY.code, f"The transitGateway ID '{ident}' does not exist.")
        message = f"route table {table['RouteTableId']} and network gateway {ident} belong to different networks"
        raise ResourceError("InvalidParameterValue", message)


# --- Routes

_BLOCK = "destinationCidrBlock"


def _parse_route(inputs: Props) -> Route:
    """Return the route of valid inputs."""
    (target,) = ((parameter, str(inputs[name])) for name, parameter in TARGETS.items() if inputs.get(name))
    return Route(str(inputs[_BLOCK]), target)


def _check_route(aws: Aws, inputs: Props) -> Iterator[InvalidInput]:
    for names in ((_BLOCK,), tuple(TARGETS)):
        if sum(bool(inputs.get(name)) for name in names) != 1:
            yield InvalidInput("routeTableId", f"takes a route with exactly one of {', '.join(names)}")
    yield from ec2.check_cidrs(inputs, [_BLOCK])


def _create_route(aws: Aws, inputs: Props) -> str:
    route = _parse_route(inputs)
    add_route(aws, inputs["routeTableId"], route)
    # The provider makes this id: AWS gives routes none.
    return f"r-{inputs['routeTableId']}{zlib.crc32(route.block.encode())}"


def _read_route(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    _find_route(aws, inputs)
    return {"origin": "CreateRoute", "state": "active"}


def _find_route(aws: Aws, inputs: Props) -> Route:
    for route in custom_routes(ec2.described(aws, ec2.ROUTE_TABLE, inputs["routeTableId"])):
        if route.block == inputs[_BLOCK]:
            return route
    raise ResourceError("InvalidRoute.NotFound", f"{inputs['routeTableId']} has no route to {inputs[_BLOCK]}")


def _update_route(aws: Aws, ident: str, old: Props, new: Props) -> None:
    table = new["routeTableId"]
    current, desired = _find_route(aws, old), _parse_route(new)
    if current == desired:
        return
    delete_route(aws, table, current)
    try:
        add_route(aws, table, desired)
    except ResourceError:
        add_route(aws, table, current)
        raise


def _delete_route(aws: Aws, ident: str, outputs: Props) -> None:
    delete_route(aws, outputs["routeTableId"], _find_route(aws, outputs))


ROUTE = ResourceKind(
    token="aws:ec2/route:Route",
    inputs=updates(*TARGETS) | replaces(_BLOCK, "routeTableId"),
    computed=frozenset({"gatewayId", "networkInterfaceId"}),
    create=_create_route,
    read=_read_route,
    update=_update_route,
    delete=_delete_route,
    complaints=_check_route,
)


# --- Route tables


def _check_default_table(aws: Aws, inputs: Props) -> Iterator[InvalidInput]:
    if inputs.get("routes"):
        yield InvalidInput("routes", "must be empty: the rehearsal models routes as resources of their own")


def _create_table(aws: Aws, inputs: Props) -> str:
    return ec2.tag(
        aws, aws.call("ec2", "create_route_table", VpcId=inputs["vpcId"])["RouteTable"]["RouteTableId"], inputs
    )


def _create_default_table(aws: Aws, inputs: Props) -> str:
    """Take over the main route table of a VPC, without its routes."""
    ident: str = inputs["defaultRouteTableId"]
    for route in custom_routes(ec2.described(aws, ec2.ROUTE_TABLE, ident)):
        delete_route(aws, ident, route)
    return ec2.tag(aws, ident, inputs)


def _read_table(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    return {
        "arn": aws.arn("ec2", f"route-table/{ident}"),
        "ownerId": aws.account,
        "vpcId": ec2.described(aws, ec2.ROUTE_TABLE, ident)["VpcId"],
    }


ROUTE_TABLE = ResourceKind(
    token="aws:ec2/routeTable:RouteTable",
    inputs=updates("tags") | replaces("vpcId"),
    create=_create_table,
    read=_read_table,
    update=ec2.retag,
    delete=deletes("ec2", "delete_route_table", "RouteTableId"),
)
DEFAULT_ROUTE_TABLE = replace(
    ROUTE_TABLE,
    token="aws:ec2/defaultRouteTable:DefaultRouteTable",
    inputs=updates("routes", "tags") | replaces("defaultRouteTableId"),
    create=_create_default_table,
    delete=delete_nothing,  # the main route table is deleted with its VPC
    complaints=_check_default_table,
)


# --- Route table associations


def _create_association(aws: Aws, inputs: Props) -> str:
    table = ec2.lasting(aws, ec2.ROUTE_TABLE, inputs["routeTableId"])
    _require_unassociated(aws, table, inputs["subnetId"])
    call = {"RouteTableId": inputs["routeTableId"], "SubnetId": inputs["subnetId"]}
    return str(aws.call("ec2", "associate_route_table", **call)["AssociationId"])


def _require_unassociated(aws: Aws, table: dict[str, Any], subnet: str) -> None:
    if ec2.lasting(aws, ec2.SUBNET, subnet)["VpcId"] != table["VpcId"]:
        message = f"Route table {table['RouteTableId']} and subnet {subnet} belong to different networks"
        raise ResourceError("InvalidParameterValue", message)
    if ec2.matching(aws, ec2.ROUTE_TABLE, {"association.subnet-id": subnet}):
        message = (
            f"the specified association for route table {table['RouteTableId']} conflicts with an existing association"
        )
        raise ResourceError("Resource.AlreadyAssociated", message)


def _read_association(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    association = ec2.current_id(aws, ident)
    if not ec2.matching(aws, ec2.ROUTE_TABLE, {"association.route-table-association-id": association}):
        raise ResourceError("InvalidAssociationID.NotFound", f"The association ID '{association}' does not exist")
    return {}


def _update_association(aws: Aws, ident: str, old: Props, new: Props) -> None:
    if old["routeTableId"] != new["routeTableId"]:
        call = {"AssociationId": ec2.current_id(aws, ident), "RouteTableId": new["routeTableId"]}
        ec2.map_id(aws, ident, aws.call("ec2", "replace_route_table_association", **call)["NewAssociationId"])


def _delete_association(aws: Aws, ident: str, outputs: Props) -> None:
    aws.call("ec2", "disassociate_route_table", AssociationId=ec2.current_id(aws, ident))
    ec2.forget_id(aws, ident)


ROUTE_TABLE_ASSOCIATION = ResourceKind(
    token="aws:ec2/routeTableAssociation:RouteTableAssociation",
    inputs=updates("routeTableId") | replaces("subnetId"),
    create=_create_association,
    read=_read_association,
    update=_update_association,
    delete=_delete_association,
    complaints=checks({}, partial(check_required, keys=("subnetId",))),
)
