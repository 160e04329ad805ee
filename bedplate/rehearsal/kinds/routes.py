"""Routes of a table: what a route may name, and how it is added and taken away. For tables and lone routes alike."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from ipaddress import ip_network
from typing import Any

from bedplate.rehearsal.kind import Props
from bedplate.rehearsal.kinds.described import (
    INTERNET_GATEWAY,
    NAT_GATEWAY,
    NETWORK_INTERFACE,
    PEERING,
    PREFIX_LIST,
    ROUTE_TABLE,
    TRANSIT_GATEWAY,
    VPN_GATEWAY,
    Noun,
    described,
    require,
)
from bedplate.rehearsal.refusal import Refusal
from bedplate.rehearsal.simulation import Aws

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
    found = described(aws, ROUTE_TABLE, table)
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
    present, goal = paths_in(described(aws, ROUTE_TABLE, table)), tuple(wanted)
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
