"""Whether the two ends of a tunnel meet: AWS's as a stack declares it, the site's as its text says it.

Reads both and asks neither's maker: what it expects is written here once more, from AWS's and strongSwan's own pages.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Network
from typing import Any

from tests.testlab.fakes.daemons import Settings

# How strongSwan's words are called by AWS: VPN tunnel options of the Site-to-Site VPN user guide.
_ENCRYPTION = {"aes256gcm16": "AES256-GCM-16", "aes128gcm16": "AES128-GCM-16", "aes128": "AES128", "aes256": "AES256"}
_INTEGRITY = {"prfsha256": "SHA2-256", "prfsha384": "SHA2-384", "prfsha512": "SHA2-512", "sha1": "SHA1"}
_GROUPS = {"modp1024": 2, "modp2048": 14, "ecp256": 19, "ecp384": 20, "ecp521": 21}
_PHASE_SECONDS = {"Phase1": 28_800, "Phase2": 3_600}
# A rekey_time is overrun by a tenth before an SA is given up (swanctl.conf: over_time, life_time).
_OVERRUN = 1.1


@dataclass(frozen=True, slots=True)
class AwsSide:
    """A tunnel as AWS has it: the arguments of its connection, its gateway's number and that of the site's gateway."""

    number: int
    connection: Mapping[str, Any]
    site_gateway: Mapping[str, Any]
    asn: int

    def option(self, name: str, left_out: Any = None) -> Any:  # noqa: ANN401  lists, numbers and words
        """Return one of the tunnel's options."""
        return self.connection.get(f"tunnel{self.number}{name}", left_out)


@dataclass(frozen=True, slots=True)
class SiteSide:
    """A tunnel as the site has it: its connection, its inside address, its neighbour's number, its own."""

    name: str
    connection: Settings
    inside: str
    neighbours: Mapping[str, int]
    asn: int


def differences(aws: AwsSide, site: SiteSide) -> tuple[str, ...]:
    """Return where the two ends would not meet, a line each; none where they do."""
    return (*_of_keys(aws, site), *_of_lives(aws, site), *_of_names(aws, site), *_of_routes(aws, site))


def _of_keys(aws: AwsSide, site: SiteSide) -> Iterator[str]:
    if aws.option("IkeVersions") != ["ikev2"] or site.connection["version"] != "2":
        yield "not both IKEv2 alone"
    offers = {"Phase1": site.connection["proposals"], "Phase2": _child(site)["esp_proposals"]}
    for phase, told in offers.items():
        taken = [_is_taken(aws, phase, offer) for offer in told.split(",")]
        if not any(taken):
            yield f"{phase}: nothing of {told} is allowed"
        elif not all(taken):
            yield f"{phase}: more is offered than allowed: {told}"


def _is_taken(aws: AwsSide, phase: str, offer: str) -> bool:
    for words, name in ((_ENCRYPTION, "EncryptionAlgorithms"), (_INTEGRITY, "IntegrityAlgorithms")):
        named = {words[word] for word in offer.split("-") if word in words}
        if not named <= set(aws.option(f"{phase}{name}", ())):
            return False
    groups = {_GROUPS[word] for word in offer.split("-") if word in _GROUPS}
    known = {*_ENCRYPTION, *_INTEGRITY, *_GROUPS}
    return bool(groups) and groups <= set(aws.option(f"{phase}DhGroupNumbers", ())) and set(offer.split("-")) <= known


def _of_lives(aws: AwsSide, site: SiteSide) -> Iterator[str]:
    ours = {"Phase1": site.connection["rekey_time"], "Phase2": _child(site)["rekey_time"]}
    for phase, told in ours.items():
        if int(told.removesuffix("s")) * _OVERRUN >= aws.option(f"{phase}LifetimeSeconds", _PHASE_SECONDS[phase]):
            yield f"{phase}: {told} is not below AWS's life"
    if int(_child(site)["replay_window"]) < aws.option("ReplayWindowSize", 1024):
        yield "the replay window is narrower than AWS's"
    starts = (aws.option("StartupAction") == "start", _child(site)["start_action"] == "start")
    if sum(starts) != 1:
        yield "both dial" if all(starts) else "nobody dials"


def _of_names(aws: AwsSide, site: SiteSide) -> Iterator[str]:
    if site.connection["local"]["id"] != aws.site_gateway["ipAddress"]:
        yield "the site calls itself otherwise than AWS knows it"
    if site.connection["remote"]["id"] != site.connection["remote_addrs"]:
        yield "AWS is called otherwise than its address"


def _of_routes(aws: AwsSide, site: SiteSide) -> Iterator[str]:
    block = IPv4Network(aws.option("InsideCidr"))
    theirs, ours = (str(address) for address in block.hosts())
    if site.inside != f"{ours}/{block.prefixlen}":
        yield f"inside, the site is {site.inside} and not {ours}/{block.prefixlen}"
    if theirs not in site.neighbours:
        yield f"{theirs} is nobody's neighbour"
    elif site.neighbours[theirs] != aws.asn:
        yield f"AWS's number is {aws.asn} and not {site.neighbours[theirs]}"
    told = int(aws.site_gateway.get("bgpAsnExtended") or aws.site_gateway["bgpAsn"])
    if told != site.asn:
        yield f"the site's number is {told} for AWS and {site.asn} for itself"
    if site.asn == aws.asn:
        yield "both have one number"
    if aws.connection.get("staticRoutesOnly"):
        yield "AWS speaks no BGP"


def _child(site: SiteSide) -> Settings:
    child: Settings = site.connection["children"][site.name]
    return child


def neighbours_told(text: str) -> tuple[int, dict[str, int]]:
    """Return the own number and the neighbours' that FRR's settings tell."""
    (own,) = re.findall(r"^router bgp (\d+)$", text, re.MULTILINE)
    found = re.findall(r"^ neighbor (\S+) remote-as (\d+)$", text, re.MULTILINE)
    return int(own), {address: int(number) for address, number in found}
