"""Routes of a table: what a route may name, and how it is added and taken away. For tables and lone routes alike."""

import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from ipaddress import ip_network
from typing import Any

from bedplate.rehearsal.kind import Complaint, Kind, Props, replaces, updates
from bedplate.rehearsal.kinds.ec2 import (
    INTERNET_GATEWAY,
    NAT_GATEWAY,
    NETWORK_INTERFACE,
    PEERING,
    PREFIX_LIST,
    SUBNET,
    TRANSIT_GATEWAY,
    VPN_GATEWAY,
    Noun,
    block_complaints,
    current_id,
    described,
    drop_id,
    keep_id,
    require,
    retag,
)
from bedplate.rehearsal.kinds.ec2 import ROUTE_TABLE as EC2_ROUTE_TABLE
from bedplate.rehearsal.kinds.ec2 import ROUTE_TABLE as NOUN
from bedplate.rehearsal.kinds.limits import undoing
from bedplate.rehearsal.simulation import Aws
from bedplate.rehearsal.state import Refusal
from bedplate.rehearsal.wire import UNKNOWN

DESTINATIONS = {
    "cidrBlock": "DestinationCidrBlock",
    "ipv6CidrBlock": "DestinationIpv6CidrBlock",
    "destinationPrefixListId": "DestinationPrefixListId",
}
TARGETS = {
    "gatewayId": "GatewayId",
    "natGatewayId": "NatGatewayId",
    "networkInterfaceId": "NetworkInterfaceId",
    "transitGatewayId": "TransitGatewayId",
    "vpcPeeringConnectionId": "VpcPeeringConnectionId",
}
# Inside the VPC's own blocks a route may lead through these alone: VPC user guide, "Middlebox routing".
_MIDDLEBOXES = frozenset({"NatGatewayId", "NetworkInterfaceId"})


@dataclass(frozen=True, slots=True)
class Path:
    """A route as EC2's parameters have it: (name, value) of where to, and of through what."""

    destination: tuple[str, str]
    target: tuple[str, str]


@dataclass(frozen=True, slots=True)
class _Target:
    """What a route may lead through, and the VPCs that it serves."""

    noun: Noun
    networks: Callable[[Aws, dict[str, Any]], Iterable[str]]


def _own_network(aws: Aws, found: dict[str, Any]) -> Iterable[str]:
    return (found["VpcId"],)


def _attached_networks(aws: Aws, found: dict[str, Any]) -> Iterable[str]:
    attachments = [*found.get("Attachments", []), *found.get("VpcAttachments", [])]
    return [each["VpcId"] for each in attachments if each["State"] in ("available", "attached")]


def _peered_networks(aws: Aws, found: dict[str, Any]) -> Iterable[str]:
    return (found["RequesterVpcInfo"]["VpcId"], found["AccepterVpcInfo"]["VpcId"])


def _hub_networks(aws: Aws, found: dict[str, Any]) -> Iterable[str]:
    networks = [{"Name": "resource-type", "Values": ["vpc"]}]
    listed = aws.call("ec2", "describe_transit_gateway_attachments", Filters=networks)["TransitGatewayAttachments"]
    hub = found["TransitGatewayId"]
    return [each["ResourceId"] for each in listed if each["TransitGatewayId"] == hub and each["State"] == "available"]


_BY_PARAMETER = {
    "NatGatewayId": _Target(NAT_GATEWAY, _own_network),
    "NetworkInterfaceId": _Target(NETWORK_INTERFACE, _own_network),
    "TransitGatewayId": _Target(TRANSIT_GATEWAY, _hub_networks),
    "VpcPeeringConnectionId": _Target(PEERING, _peered_networks),
}
_BY_PREFIX = {
    "igw": _Target(INTERNET_GATEWAY, _attached_networks),
    "vgw": _Target(VPN_GATEWAY, _attached_networks),
}


def path_of(route: Props, destinations: Mapping[str, str] = DESTINATIONS) -> Path:
    """Return the path of a route block that `route_faults` finds nothing wrong with."""
    (destination,) = _given(route, destinations)
    (target,) = _given(route, TARGETS)
    return Path(destination, target)


def route_faults(route: Props, destinations: Mapping[str, str] = DESTINATIONS) -> Iterator[str]:
    """Yield what is wrong with a route block: it names one destination and one target."""
    for names in (tuple(destinations), tuple(TARGETS)):
        if sum(bool(route.get(name)) for name in names) != 1:
            yield f"a route names exactly one of {', '.join(names)}"


def _given(route: Props, names: Mapping[str, str]) -> list[tuple[str, str]]:
    return [(parameter, str(route[name])) for name, parameter in names.items() if route.get(name)]


def paths_in(table: Mapping[str, Any]) -> tuple[Path, ...]:
    """Return the routes of a described table that somebody made; local ones and those of endpoints are AWS's."""
    return tuple(
        Path(_first(route, DESTINATIONS.values()), _first(route, TARGETS.values()))
        for route in table["Routes"]
        if route["Origin"] == "CreateRoute" and not str(route.get("GatewayId", "")).startswith("vpce-")
    )


def _first(route: Mapping[str, Any], parameters: Iterable[str]) -> tuple[str, str]:
    """Return the first of some parameters that a described route has; what went away leaves none."""
    return next(((name, str(route[name])) for name in parameters if route.get(name)), ("", ""))


def add_path(aws: Aws, table: str, path: Path) -> None:
    """Add a route; raise Refusal when it exists, or its target does not or serves another VPC."""
    found = described(aws, EC2_ROUTE_TABLE, table)
    _require_room(found, path)
    _require_target(aws, found, path)
    if path.destination[0] == "DestinationPrefixListId":
        require(aws, PREFIX_LIST, path.destination[1])
    aws.call("ec2", "create_route", RouteTableId=table, **dict([path.destination, path.target]))


def remove_path(aws: Aws, table: str, path: Path) -> None:
    """Take a route away."""
    aws.call("ec2", "delete_route", RouteTableId=table, **dict([path.destination]))


def bring_paths(aws: Aws, table: str, wanted: Iterable[Path]) -> None:
    """Make a table's routes exactly those wanted, whoever made the others."""
    present, goal = paths_in(described(aws, EC2_ROUTE_TABLE, table)), tuple(wanted)
    for path in present:
        if path not in goal:
            remove_path(aws, table, path)
    for path in goal:
        if path not in present:
            add_path(aws, table, path)


def _require_room(table: Mapping[str, Any], path: Path) -> None:
    parameter, value = path.destination
    if any(route.get(parameter) == value for route in table["Routes"]):
        raise Refusal("RouteAlreadyExists", f"The route identified by {value} already exists.")
    own = [route["DestinationCidrBlock"] for route in table["Routes"] if route.get("GatewayId") == "local"]
    if parameter == "DestinationCidrBlock" and path.target[0] not in _MIDDLEBOXES and _inside(value, own):
        told = f"The destination CIDR block {value} is equal to or more specific than one of this VPC's CIDR blocks."
        raise Refusal("InvalidParameterValue", f"{told} This route can target only an interface or an instance.")


def _inside(block: str, others: Iterable[str]) -> bool:
    network = ip_network(block)
    return any(network.subnet_of(ip_network(other)) for other in others)  # type: ignore[arg-type]  # both are IPv4


def _require_target(aws: Aws, table: Mapping[str, Any], path: Path) -> None:
    parameter, ident = path.target
    target = _BY_PARAMETER.get(parameter) or _BY_PREFIX.get(ident.partition("-")[0])
    if target is None:
        raise Refusal("InvalidGatewayID.NotFound", f"The gateway ID '{ident}' does not exist")
    if table["VpcId"] not in target.networks(aws, described(aws, target.noun, ident)):
        # AWS's word for a transit gateway without an attachment in the VPC is that it does not exist.
        if target.noun is TRANSIT_GATEWAY:
            raise Refusal(TRANSIT_GATEWAY.code, f"The transitGateway ID '{ident}' does not exist.")
        told = f"route table {table['RouteTableId']} and network gateway {ident} belong to different networks"
        raise Refusal("InvalidParameterValue", told)


_DESTINATIONS = {
    "destinationCidrBlock": "DestinationCidrBlock",
    "destinationIpv6CidrBlock": "DestinationIpv6CidrBlock",
    "destinationPrefixListId": "DestinationPrefixListId",
}


def _create(aws: Aws, inputs: Props) -> str:
    path = path_of(inputs, _DESTINATIONS)
    add_path(aws, inputs["routeTableId"], path)
    # The provider's own: AWS gives routes no ids.
    return f"r-{inputs['routeTableId']}{zlib.crc32(path.destination[1].encode())}"


def _update(aws: Aws, ident: str, old: Props, new: Props) -> None:
    table = new["routeTableId"]
    present, wanted = _present(aws, old), path_of(new, _DESTINATIONS)
    if present == wanted:
        return
    remove_path(aws, table, present)
    try:
        add_path(aws, table, wanted)
    except Refusal:
        add_path(aws, table, present)
        raise


def _present(aws: Aws, inputs: Props) -> Path:
    destination = path_of(inputs, _DESTINATIONS).destination
    for path in paths_in(described(aws, EC2_ROUTE_TABLE, inputs["routeTableId"])):
        if path.destination == destination:
            return path
    raise Refusal("InvalidRoute.NotFound", f"no route with destination {destination[1]} in {inputs['routeTableId']}")


def _read(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    _present(aws, inputs)
    return {"origin": "CreateRoute", "state": "active"}


def _delete(aws: Aws, ident: str, outputs: Props) -> None:
    remove_path(aws, outputs["routeTableId"], _present(aws, outputs))


def _complaints(aws: Aws, inputs: Props) -> Iterator[Complaint]:
    yield from (Complaint("routeTableId", fault) for fault in route_faults(inputs, _DESTINATIONS))
    yield from block_complaints(inputs, ["destinationCidrBlock"])
    yield from block_complaints(inputs, ["destinationIpv6CidrBlock"], version=6)


ROUTE = Kind(
    token="aws:ec2/route:Route",
    inputs=updates(*TARGETS) | replaces(*_DESTINATIONS, "routeTableId"),
    computed=frozenset({"gatewayId", "networkInterfaceId"}),
    create=_create,
    read=_read,
    update=_update,
    delete=_delete,
    complaints=_complaints,
)


_NOTE = "moto has no route propagation: gateways are checked, their routes never appear"


def _route_table_create(aws: Aws, inputs: Props) -> str:
    ident: str = aws.call("ec2", "create_route_table", VpcId=inputs["vpcId"])["RouteTable"]["RouteTableId"]
    with undoing(lambda: aws.call("ec2", "delete_route_table", RouteTableId=ident)):
        _route_table_update(aws, ident, {}, inputs)
    return ident


def _adopt(aws: Aws, inputs: Props) -> str:
    """Take over a VPC's first table, with the routes that are named and no others."""
    ident: str = inputs["defaultRouteTableId"]
    described(aws, NOUN, ident)
    _route_table_update(aws, ident, {}, {"routes": [], **inputs})
    return ident


def _route_table_update(aws: Aws, ident: str, old: Props, new: Props) -> None:
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


def _route_table_read(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    return {
        "arn": aws.arn("ec2", f"route-table/{ident}"),
        "ownerId": aws.account,
        "vpcId": described(aws, NOUN, ident)["VpcId"],
    }


def _route_table_delete(aws: Aws, ident: str, outputs: Props) -> None:
    aws.call("ec2", "delete_route_table", RouteTableId=ident)


def _leave(aws: Aws, ident: str, outputs: Props) -> None:
    """Leave the table as it is: it goes with its VPC."""


def _route_table_complaints(aws: Aws, inputs: Props) -> Iterator[Complaint]:
    routes = inputs.get("routes")
    for number, route in enumerate(routes if isinstance(routes, list) else []):
        faults = route_faults(route) if route is not UNKNOWN else ()
        yield from (Complaint(f"routes[{number}]", fault) for fault in faults)


ROUTE_TABLE = Kind(
    token="aws:ec2/routeTable:RouteTable",
    inputs=updates("propagatingVgws", "routes", "tags") | replaces("vpcId"),
    computed=frozenset({"propagatingVgws", "routes"}),
    sets=frozenset({"propagatingVgws", "routes"}),
    create=_route_table_create,
    read=_route_table_read,
    update=_route_table_update,
    delete=_route_table_delete,
    complaints=_route_table_complaints,
    note=_NOTE,
)
DEFAULT_ROUTE_TABLE = Kind(
    token="aws:ec2/defaultRouteTable:DefaultRouteTable",
    inputs=updates("propagatingVgws", "routes", "tags") | replaces("defaultRouteTableId"),
    computed=frozenset({"routes"}),
    sets=frozenset({"propagatingVgws", "routes"}),
    create=_adopt,
    read=_route_table_read,
    update=_route_table_update,
    delete=_leave,
    complaints=_route_table_complaints,
    note=_NOTE,
)


_TARGETS = {"gatewayId": "GatewayId", "subnetId": "SubnetId"}


def _route_table_association_create(aws: Aws, inputs: Props) -> str:
    table = described(aws, EC2_ROUTE_TABLE, inputs["routeTableId"])
    if subnet := inputs.get("subnetId"):
        _require_free(aws, table, subnet)
    target = {parameter: inputs[name] for name, parameter in _TARGETS.items() if inputs.get(name)}
    made = aws.call("ec2", "associate_route_table", RouteTableId=inputs["routeTableId"], **target)
    return str(made["AssociationId"])


def _require_free(aws: Aws, table: dict[str, Any], subnet: str) -> None:
    if described(aws, SUBNET, subnet)["VpcId"] != table["VpcId"]:
        told = f"Route table {table['RouteTableId']} and subnet {subnet} belong to different networks"
        raise Refusal("InvalidParameterValue", told)
    theirs = [{"Name": "association.subnet-id", "Values": [subnet]}]
    if aws.call("ec2", "describe_route_tables", Filters=theirs)["RouteTables"]:
        told = (
            f"the specified association for route table {table['RouteTableId']} conflicts with an existing association"
        )
        raise Refusal("Resource.AlreadyAssociated", told)


def _route_table_association_update(aws: Aws, ident: str, old: Props, new: Props) -> None:
    if old["routeTableId"] != new["routeTableId"]:
        keep_id(aws, ident, _replace(aws, current_id(aws, ident), new["routeTableId"]))


def _replace(aws: Aws, association: str, table: str) -> str:
    made = aws.call("ec2", "replace_route_table_association", AssociationId=association, RouteTableId=table)
    return str(made["NewAssociationId"])


def _route_table_association_read(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    _find(aws, current_id(aws, ident))
    return {}


def _find(aws: Aws, association: str) -> None:
    ours = [{"Name": "association.route-table-association-id", "Values": [association]}]
    if not aws.call("ec2", "describe_route_tables", Filters=ours)["RouteTables"]:
        raise Refusal("InvalidAssociationID.NotFound", f"The association ID '{association}' does not exist")


def _route_table_association_delete(aws: Aws, ident: str, outputs: Props) -> None:
    aws.call("ec2", "disassociate_route_table", AssociationId=current_id(aws, ident))
    drop_id(aws, ident)


def _route_table_association_complaints(aws: Aws, inputs: Props) -> Iterator[Complaint]:
    if bool(inputs.get("subnetId")) == bool(inputs.get("gatewayId")):
        yield Complaint("subnetId", "give exactly one of subnetId, gatewayId")


ROUTE_TABLE_ASSOCIATION = Kind(
    token="aws:ec2/routeTableAssociation:RouteTableAssociation",
    inputs=updates("routeTableId") | replaces(*_TARGETS),
    create=_route_table_association_create,
    read=_route_table_association_read,
    update=_route_table_association_update,
    delete=_route_table_association_delete,
    complaints=_route_table_association_complaints,
)
