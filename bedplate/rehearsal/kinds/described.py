"""What EC2 says of a resource that goes by an id; one that does not exist, or no longer does, is refused.

moto lets many ids pass that AWS would not, and tells of the deleted for ever: kinds ask here first.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bedplate.rehearsal.faults import NO_ENDPOINT
from bedplate.rehearsal.refusal import Refusal
from bedplate.rehearsal.simulation import Aws

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
