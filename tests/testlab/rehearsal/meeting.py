"""Comparison of the two ends of an IPsec tunnel: the AWS side that a stack declares, and the settings of the site.

It does not use the code that renders either side. Its expectations come from the manuals of AWS and strongSwan.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Network
from typing import Any

from tests.testlab.fakes.daemons import Settings

# strongSwan's algorithm names -> AWS's: VPN tunnel options, Site-to-Site VPN user guide.
_ENCRYPTION = {"aes256gcm16": "AES256-GCM-16", "aes128gcm16": "AES128-GCM-16", "aes128": "AES128", "aes256": "AES256"}
_INTEGRITY = {"prfsha256": "SHA2-256", "prfsha384": "SHA2-384", "prfsha512": "SHA2-512", "sha1": "SHA1"}
_GROUPS = {"modp1024": 2, "modp2048": 14, "ecp256": 19, "ecp384": 20, "ecp521": 21}
_PHASE_SECONDS = {"Phase1": 28_800, "Phase2": 3_600}
# An SA expires 10 % after its rekey_time (swanctl.conf: over_time, life_time).
_OVERRUN = 1.1


@dataclass(frozen=True, slots=True)
class AwsSide:
    """The AWS side of a tunnel: the inputs of its connection and of the customer gateway, and the AWS-side ASN."""

    number: int
    connection: Mapping[str, Any]
    site_gateway: Mapping[str, Any]
    asn: int

    def option(self, name: str, default: Any = None) -> Any:  # noqa: ANN401  lists, numbers and words
        """Return one of the options of the tunnel."""
        return self.connection.get(f"tunnel{self.number}{name}", default)


@dataclass(frozen=True, slots=True)
class SiteSide:
    """The site side of a tunnel: its connection, inside address, BGP neighbours and ASN."""

    name: str
    connection: Settings
    inside: str
    neighbours: Mapping[str, int]
    asn: int


def differences(aws: AwsSide, site: SiteSide) -> tuple[str, ...]:
    """Return one line for each setting with which the tunnel would not come up."""
    comparisons = (_algorithm_differences, _lifetime_differences, _identity_differences, _routing_differences)
    return tuple(line for compare in comparisons for line in compare(aws, site))


def _algorithm_differences(aws: AwsSide, site: SiteSide) -> Iterator[str]:
    if aws.option("IkeVersions") != ["ikev2"] or site.connection["version"] != "2":
        yield "one side does not use IKEv2 only"
    proposals = {"Phase1": site.connection["proposals"], "Phase2": _child(site)["esp_proposals"]}
    for phase, text in proposals.items():
        accepted = [_is_accepted(aws, phase, proposal) for proposal in text.split(",")]
        if not any(accepted):
            yield f"{phase}: AWS accepts none of {text}"
        elif not all(accepted):
            yield f"{phase}: AWS accepts only part of {text}"


def _is_accepted(aws: AwsSide, phase: str, proposal: str) -> bool:
    for names, option in ((_ENCRYPTION, "EncryptionAlgorithms"), (_INTEGRITY, "IntegrityAlgorithms")):
        algorithms = {names[name] for name in proposal.split("-") if name in names}
        if not algorithms <= set(aws.option(f"{phase}{option}", ())):
            return False
    parts = set(proposal.split("-"))
    groups = {_GROUPS[name] for name in parts if name in _GROUPS}
    are_allowed = bool(groups) and groups <= set(aws.option(f"{phase}DhGroupNumbers", ()))
    return are_allowed and parts <= {*_ENCRYPTION, *_INTEGRITY, *_GROUPS}


def _lifetime_differences(aws: AwsSide, site: SiteSide) -> Iterator[str]:
    rekey_times = {"Phase1": site.connection["rekey_time"], "Phase2": _child(site)["rekey_time"]}
    for phase, text in rekey_times.items():
        if int(text.removesuffix("s")) * _OVERRUN >= aws.option(f"{phase}LifetimeSeconds", _PHASE_SECONDS[phase]):
            yield f"{phase}: rekey_time {text} is not below AWS's lifetime"
    if int(_child(site)["replay_window"]) < aws.option("ReplayWindowSize", 1024):
        yield "the replay window is smaller than AWS's"
    starts = (aws.option("StartupAction") == "start", _child(site)["start_action"] == "start")
    if sum(starts) != 1:
        yield "both sides initiate" if all(starts) else "no side initiates"


def _identity_differences(aws: AwsSide, site: SiteSide) -> Iterator[str]:
    if site.connection["local"]["id"] != aws.site_gateway["ipAddress"]:
        yield "local id of the site is not its address in AWS"
    if site.connection["remote"]["id"] != site.connection["remote_addrs"]:
        yield "remote id of the site is not the address of AWS"


def _routing_differences(aws: AwsSide, site: SiteSide) -> Iterator[str]:
    block = IPv4Network(aws.option("InsideCidr"))
    aws_address, site_address = (str(address) for address in block.hosts())
    if site.inside != f"{site_address}/{block.prefixlen}":
        yield f"inside address of the site is {site.inside}, not {site_address}/{block.prefixlen}"
    if aws_address not in site.neighbours:
        yield f"{aws_address} is not a BGP neighbour of the site"
    elif site.neighbours[aws_address] != aws.asn:
        yield f"ASN of AWS is {aws.asn}, not {site.neighbours[aws_address]}"
    customer_asn = int(aws.site_gateway.get("bgpAsnExtended") or aws.site_gateway["bgpAsn"])
    if customer_asn != site.asn:
        yield f"ASN of the site is {customer_asn} in AWS and {site.asn} on the gateway"
    if site.asn == aws.asn:
        yield "both sides have the same ASN"
    if aws.connection.get("staticRoutesOnly"):
        yield "AWS does not use BGP"


def _child(site: SiteSide) -> Settings:
    child: Settings = site.connection["children"][site.name]
    return child


def frr_neighbours(text: str) -> tuple[int, dict[str, int]]:
    """Return the local ASN and the ASN of each neighbour in FRR's settings."""
    (asn,) = re.findall(r"^router bgp (\d+)$", text, re.MULTILINE)
    neighbours = re.findall(r"^ neighbor (\S+) remote-as (\d+)$", text, re.MULTILINE)
    return int(asn), {address: int(number) for address, number in neighbours}
