"""EC2 resources by id: descriptions, tags, CIDR blocks and interfaces.

moto accepts ids that do not exist, and describes deleted resources for ever. `described`, `lasting` and `require` raise
the API error of AWS instead, so kinds call them before they use an id.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Network, ip_network
from typing import Any

from bedplate.rehearsal.faults import NO_ENDPOINT
from bedplate.rehearsal.kind import InvalidInput, Props, capitalized
from bedplate.rehearsal.kinds.calls import existing
from bedplate.rehearsal.kinds.limits import tag_pairs
from bedplate.rehearsal.simulation import Aws
from bedplate.rehearsal.state import ResourceError
from bedplate.rehearsal.wire import is_known

_DELETED_STATES = frozenset({"deleted", "deleting", "delete-complete", "failed", "rejected", "expired"})


@dataclass(frozen=True, slots=True)
class Ec2Resource:
    """One type of EC2 resource: the call that describes it by id, and the error code for an unknown id."""

    word: str
    operation: str
    parameter: str
    listing: str
    code: str


def _resource(word: str, stem: str = "", *, parameter: str = "", listing: str = "", code: str = "") -> Ec2Resource:
    """Return the resource type with a stem such as VpcEndpoint, by default made from its word in messages."""
    stem = stem or capitalized(word)
    snake = re.sub(r"(?<!^)(?=[A-Z])", "_", stem).lower()
    listing = listing or f"{stem}s"
    operation = f"describe_{snake}s"
    return Ec2Resource(word, operation, parameter or f"{stem}Ids", listing, code or f"Invalid{stem}ID.NotFound")


ADDRESS = Ec2Resource("allocation", "describe_addresses", "AllocationIds", "Addresses", "InvalidAllocationID.NotFound")
CUSTOMER_GATEWAY = _resource("customerGateway")
FLOW_LOG = _resource("flowLog", code="InvalidFlowLogId.NotFound")
INTERNET_GATEWAY = _resource("internetGateway")
NAT_GATEWAY = _resource("natGateway")
NETWORK_ACL = _resource("networkAcl")
NETWORK_INTERFACE = _resource("networkInterface")
PEERING = _resource("vpcPeeringConnection")
PREFIX_LIST = _resource(
    "prefixList",
    "ManagedPrefixList",
    parameter="PrefixListIds",
    listing="PrefixLists",
    code="InvalidPrefixListID.NotFound",
)
ROUTE_TABLE = _resource("routeTable")
SECURITY_GROUP = _resource("security group", "SecurityGroup", parameter="GroupIds", code="InvalidGroup.NotFound")
SECURITY_GROUP_RULE = _resource("security group rule", "SecurityGroupRule", code="InvalidSecurityGroupRuleId.NotFound")
SUBNET = _resource("subnet")
TRANSIT_ATTACHMENT = _resource("transitGatewayAttachment")
TRANSIT_GATEWAY = _resource("transitGateway")
TRANSIT_TABLE = _resource("transitGatewayRouteTable", code="InvalidRouteTableID.NotFound")
VOLUME = _resource("volume", code="InvalidVolume.NotFound")
VPC = _resource("vpc")
VPC_ENDPOINT = _resource("vpcEndpoint", code="InvalidVpcEndpointId.NotFound")
VPN_CONNECTION = _resource("vpnConnection")
VPN_GATEWAY = _resource("vpnGateway")


def described(aws: Aws, resource: Ec2Resource, ident: str) -> dict[str, Any]:
    """Return the EC2 description of an existing resource; raise ResourceError with the code of AWS otherwise."""
    try:
        listed = aws.call("ec2", resource.operation, **{resource.parameter: [ident]})[resource.listing]
    except ResourceError as refusal:
        if refusal.code == NO_ENDPOINT:
            raise
        listed = []
    return existing(filter(is_live, listed), resource.code, f"The {resource.word} ID '{ident}' does not exist")


def lasting(aws: Aws, resource: Ec2Resource, ident: str) -> dict[str, Any]:
    """Return `described` of an earlier question, for what never changes, such as the VPC of a subnet.

    Only for resources that end by a call with their own id, in their own region.
    """
    known = aws.simulation.lasting
    if (aws.region, ident) not in known:
        known[aws.region, ident] = described(aws, resource, ident)
    return known[aws.region, ident]


def require(aws: Aws, resource: Ec2Resource, *idents: str) -> None:
    """Raise ResourceError with the code of AWS unless every id is that of an existing resource, as in `lasting`."""
    for ident in idents:
        lasting(aws, resource, ident)


def is_live(description: Mapping[str, Any]) -> bool:
    """Tell whether a described resource still exists; AWS, too, lists deleted resources for a while."""
    state = description.get("State") or description.get("Status") or ""
    name = state.get("Code", "") if isinstance(state, dict) else state
    return name not in _DELETED_STATES


def tag(aws: Aws, ident: str, inputs: Props) -> str:
    """Tag a new resource; return its id."""
    retag(aws, ident, {}, inputs)
    return ident


def retag(aws: Aws, ident: str, old: Props, new: Props) -> None:
    """Change the tags of a resource from the old inputs to the new ones."""
    before, after = old.get("tags") or {}, new.get("tags") or {}
    if removed := sorted(before.keys() - after.keys()):
        aws.call("ec2", "delete_tags", Resources=[ident], Tags=[{"Key": key} for key in removed])
    if added := dict(after.items() - before.items()):
        aws.call("ec2", "create_tags", Resources=[ident], Tags=tag_pairs(added))


def tag_specifications(resource_type: str, inputs: Props) -> dict[str, Any]:
    """Return the parameter that tags a resource in the call that creates it, if it has tags."""
    pairs = tag_pairs(inputs.get("tags"))
    return {"TagSpecifications": [{"ResourceType": resource_type, "Tags": pairs}]} if pairs else {}


# moto cannot change some objects in place: they are created again, and the id in the program stays the same.
_ID_TABLE = "ids"


def current_id(aws: Aws, ident: str) -> str:
    """Return the id in moto of the object that has the id `ident` in the program."""
    return str(aws.fakes(_ID_TABLE).get(ident, {}).get("current", ident))


def map_id(aws: Aws, ident: str, moto_id: str) -> None:
    """Record that the object `ident` of the program has the id `moto_id` in moto."""
    aws.fakes(_ID_TABLE)[ident] = {"current": moto_id}


def forget_id(aws: Aws, ident: str) -> None:
    """Delete the record of an object that no longer exists."""
    aws.fakes(_ID_TABLE).pop(ident, None)


def matching(aws: Aws, resource: Ec2Resource, filters: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return the descriptions of the resources that match EC2 filters, such as `subnet-id`."""
    parameters = [{"Name": name, "Values": [value]} for name, value in filters.items()]
    listed: list[dict[str, Any]] = aws.call("ec2", resource.operation, Filters=parameters)[resource.listing]
    return listed


def default_groups(aws: Aws, vpc: str) -> list[str]:
    """Return the id of the default security group of a VPC, in a list."""
    return [group["GroupId"] for group in matching(aws, SECURITY_GROUP, {"vpc-id": vpc, "group-name": "default"})]


def used_addresses(aws: Aws, subnet: str) -> set[str]:
    """Return the addresses of a subnet that interfaces use."""
    interfaces = matching(aws, NETWORK_INTERFACE, {"subnet-id": subnet})
    return {item["PrivateIpAddress"] for interface in interfaces for item in interface["PrivateIpAddresses"]}


def check_cidrs(inputs: Props, keys: Iterable[str], *, sizes: range | None = None) -> Iterator[InvalidInput]:
    """Yield an error for each invalid CIDR block of the inputs `keys`; `sizes` are the allowed prefix lengths."""
    for key in keys:
        value = inputs.get(key)
        for text in value if isinstance(value, list) else [value]:
            if is_known(text) and (reason := _cidr_error(str(text), sizes)):
                yield InvalidInput(key, reason)


def _cidr_error(text: str, sizes: range | None) -> str:
    """Return why a CIDR block is invalid, or an empty string."""
    try:
        network = ip_network(text, strict=False)
    except ValueError:
        return f"{text!r} is not a CIDR block"
    if not isinstance(network, IPv4Network):
        return f"{text!r} is not an IPv4 CIDR block"
    if str(network) != text:
        return f"{text!r} is not a CIDR block; write {str(network)!r}"
    if sizes is not None and network.prefixlen not in sizes:
        return f"{text!r} must have a prefix length of /{sizes.start} to /{sizes.stop - 1}"
    return ""


def require_internet_gateway(aws: Aws, vpc: str, key: str) -> None:
    """Raise ResourceError for the input `key`, which needs a public address, when the VPC has no internet gateway."""
    if not matching(aws, INTERNET_GATEWAY, {"attachment.vpc-id": vpc}):
        raise ResourceError("Gateway.NotAttached", f"Network {vpc} has no Internet gateway attached", key=key)
