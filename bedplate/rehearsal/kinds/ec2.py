"""What EC2 says of a resource that goes by an id; one that does not exist, or no longer does, is refused.

moto lets many ids pass that AWS would not, and tells of the deleted for ever: kinds ask here first.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from ipaddress import ip_network
from typing import Any

from bedplate.rehearsal.faults import NO_ENDPOINT
from bedplate.rehearsal.kind import Complaint, Props
from bedplate.rehearsal.simulation import Aws
from bedplate.rehearsal.state import Refusal
from bedplate.rehearsal.wire import is_known

_GONE = frozenset({"deleted", "deleting", "delete-complete", "failed", "rejected", "expired"})


@dataclass(frozen=True, slots=True)
class Noun:
    """One type of EC2 resource: how it is described by id, and AWS's code for an id that does not exist."""

    word: str
    operation: str
    parameter: str
    listing: str
    code: str


def _noun(word: str, stem: str = "", *, parameter: str = "", listing: str = "", code: str = "") -> Noun:
    """Return the noun for a stem such as VpcEndpoint; without one, the word is the stem."""
    stem = stem or word[0].upper() + word[1:]
    snake = re.sub(r"(?<!^)(?=[A-Z])", "_", stem).lower()
    listing = listing or f"{stem}s"
    operation = f"describe_{snake}s"
    return Noun(word, operation, parameter or f"{stem}Ids", listing, code or f"Invalid{stem}ID.NotFound")


ADDRESS = Noun("allocation", "describe_addresses", "AllocationIds", "Addresses", "InvalidAllocationID.NotFound")
CUSTOMER_GATEWAY = _noun("customerGateway")
FLOW_LOG = _noun("flowLog", code="InvalidFlowLogId.NotFound")
INTERNET_GATEWAY = _noun("internetGateway")
NAT_GATEWAY = _noun("natGateway")
NETWORK_INTERFACE = _noun("networkInterface")
PEERING = _noun("vpcPeeringConnection")
PREFIX_LIST = _noun(
    "prefixList",
    "ManagedPrefixList",
    parameter="PrefixListIds",
    listing="PrefixLists",
    code="InvalidPrefixListID.NotFound",
)
ROUTE_TABLE = _noun("routeTable")
SECURITY_GROUP = _noun("security group", "SecurityGroup", parameter="GroupIds", code="InvalidGroup.NotFound")
SECURITY_GROUP_RULE = _noun("security group rule", "SecurityGroupRule", code="InvalidSecurityGroupRuleId.NotFound")
SUBNET = _noun("subnet")
TRANSIT_ATTACHMENT = _noun("transitGatewayAttachment")
TRANSIT_GATEWAY = _noun("transitGateway")
TRANSIT_TABLE = _noun("transitGatewayRouteTable", code="InvalidRouteTableID.NotFound")
VOLUME = _noun("volume", code="InvalidVolume.NotFound")
VPC = _noun("vpc")
VPC_ENDPOINT = _noun("vpcEndpoint", code="InvalidVpcEndpointId.NotFound")
VPN_CONNECTION = _noun("vpnConnection")
VPN_GATEWAY = _noun("vpnGateway")


def described(aws: Aws, noun: Noun, ident: str) -> dict[str, Any]:
    """Return EC2's description of a live resource; raise Refusal with AWS's code when there is none."""
    try:
        listed = aws.call("ec2", noun.operation, **{noun.parameter: [ident]})[noun.listing]
    except Refusal as refusal:
        if refusal.code == NO_ENDPOINT:
            raise
        listed = []
    live: list[dict[str, Any]] = [item for item in listed if is_live(item)]
    if not live:
        raise Refusal(noun.code, f"The {noun.word} ID '{ident}' does not exist")
    return live[0]


def require(aws: Aws, noun: Noun, *idents: str) -> None:
    """Raise Refusal with AWS's code unless every id is one of a live resource."""
    for ident in idents:
        described(aws, noun, ident)


def is_live(description: Mapping[str, Any]) -> bool:
    """Whether a description is of something that exists: AWS, too, tells for a while of what was deleted."""
    state = description.get("State") or description.get("Status") or ""
    word = state.get("Code", "") if isinstance(state, dict) else state
    return word not in _GONE


def tag(aws: Aws, ident: str, inputs: Props) -> str:
    """Give a new resource its tags; return its id."""
    retag(aws, ident, {}, inputs)
    return ident


def retag(aws: Aws, ident: str, old: Props, new: Props) -> None:
    """Bring the tags of a resource from the old inputs' to the new ones'."""
    before, after = old.get("tags") or {}, new.get("tags") or {}
    if gone := sorted(before.keys() - after.keys()):
        aws.call("ec2", "delete_tags", Resources=[ident], Tags=[{"Key": key} for key in gone])
    if fresh := sorted(after.items() - before.items()):
        pairs = [{"Key": key, "Value": value} for key, value in fresh]
        aws.call("ec2", "create_tags", Resources=[ident], Tags=pairs)


def born_with(noun: str, inputs: Props) -> dict[str, Any]:
    """Return the parameter that gives a resource its tags as it is made: by them it can be found again."""
    pairs = [{"Key": key, "Value": value} for key, value in sorted((inputs.get("tags") or {}).items())]
    return {"TagSpecifications": [{"ResourceType": noun, "Tags": pairs}]} if pairs else {}


_BOOK = "ids"


def current_id(aws: Aws, held: str) -> str:
    """Return moto's id of the object that programs know as `held`."""
    return str(aws.fakes(_BOOK).get(held, {}).get("current", held))


def keep_id(aws: Aws, held: str, current: str) -> None:
    """Note that what programs know as `held` is `current` in moto now."""
    aws.fakes(_BOOK)[held] = {"current": current}


def drop_id(aws: Aws, held: str) -> None:
    """Forget an id whose object is deleted."""
    aws.fakes(_BOOK).pop(held, None)


def interfaces_of(aws: Aws, name: str, value: str) -> list[dict[str, Any]]:
    """Return the interfaces that a filter of EC2 finds, such as those of a `subnet-id`."""
    wanted = [{"Name": name, "Values": [value]}]
    found: list[dict[str, Any]] = aws.call("ec2", "describe_network_interfaces", Filters=wanted)["NetworkInterfaces"]
    return found


def taken_addresses(aws: Aws, subnet: str) -> set[str]:
    """Return the addresses of a subnet that interfaces have."""
    there = interfaces_of(aws, "subnet-id", subnet)
    return {each["PrivateIpAddress"] for found in there for each in found["PrivateIpAddresses"]}


def block_complaints(
    inputs: Props, keys: Iterable[str], *, version: int = 4, sizes: range | None = None
) -> Iterator[Complaint]:
    """Yield what is wrong with the blocks, one or a list, under the inputs `keys`; `sizes` are prefix lengths."""
    for key in keys:
        given = inputs.get(key)
        for text in given if isinstance(given, list) else [given]:
            if is_known(text) and (reason := _block_fault(str(text), version, sizes)):
                yield Complaint(key, reason)


def _block_fault(text: str, version: int, sizes: range | None = None) -> str:
    """Return what is wrong with one block, or nothing."""
    try:
        network = ip_network(text, strict=False)
    except ValueError:
        return f"{text!r} is not a CIDR block"
    if network.version != version:
        return f"{text!r} is not an IPv{version} CIDR block"
    if str(network) != text:
        return f"{text!r} is not a CIDR block; did you mean {str(network)!r}?"
    if sizes is not None and network.prefixlen not in sizes:
        return f"{text!r} has a size out of /{sizes.start} to /{sizes.stop - 1}"
    return ""


def require_way_out(aws: Aws, vpc: str, key: str) -> None:
    """Refuse a public address, asked for under an input, in a VPC that has no internet gateway."""
    there = [{"Name": "attachment.vpc-id", "Values": [vpc]}]
    if not aws.call("ec2", "describe_internet_gateways", Filters=there)["InternetGateways"]:
        raise Refusal("Gateway.NotAttached", f"Network {vpc} has no Internet gateway attached", key=key)
