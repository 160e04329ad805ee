"""Names that are made from the file's words: within what AWS and DNS take, once all prefixes stand before them."""

from collections.abc import Iterator

from bedplate.checks.context import Evidence
from bedplate.checks.diagnostics import Fault, Rule, fault
from bedplate.checks.ladders import rungs_of
from bedplate.plan.fleet import member_name
from bedplate.plan.laptops import NAME_PREFIX
from bedplate.plan.nodes import SITE_END
from bedplate.plan.pools import pool_name
from bedplate.spec import Fleet
from bedplate.spec.network import TunnelAuth
from bedplate.spec.sites import Use
from bedplate.spec.text import LONGEST

# Amazon EC2 API reference, CreateLaunchTemplate; an Auto Scaling group's may have 255.
LONGEST_TEMPLATE = 128


def check_names(evidence: Evidence) -> Iterator[Fault]:
    """Tell groups whose pools or machines would have names that are too long, or somebody else's."""
    fleet = evidence.fleet
    yield from _taken(fleet)
    for name, group in fleet.groups.items():
        for key, rung in rungs_of(name, group):
            # A pool of one zone is named after it: one letter more than the region.
            place = rung.zone or f"{rung.region}a"
            pool = f"{fleet.name}-{pool_name(name, rung, place)}"
            if len(pool) > LONGEST_TEMPLATE:
                message = f"the launch template {pool[:20]}... has {len(pool)} characters; EC2 takes {LONGEST_TEMPLATE}"
                yield fault("E350", key, message)
            host = f"{name}-{group.nodes.max}.{rung.region}.{fleet.domain}"
            if group.use is Use.SSH and len(host) > LONGEST:
                message = f"full names of its machines have {len(host)} characters; RFC 1123 allows {LONGEST}"
                yield fault("E248", f"groups.{name}", message)
                break


def _taken(fleet: Fleet) -> Iterator[Fault]:
    """Tell groups that people log in to whose machines would be called like those of the control plane."""
    home = next((name for name, region in fleet.regions.items() if region.home), "")
    first = member_name(1, home)
    for name, group in fleet.groups.items() if fleet.kubernetes else ():
        places = {rung.region for rung in group.ladder}
        if group.use is Use.SSH and home in places and f"{name}-1.{home}" == first:
            yield fault("E353", f"groups.{name}", f"{first} is a machine of the control plane")


# RFC 5280, appendix A.1: ub-common-name.
LONGEST_COMMON_NAME = 64


def check_certified(evidence: Evidence) -> Iterator[Fault]:
    """Tell gateways to which no certificate could be issued, for the length of their names."""
    for key, name in (*_of_laptops(evidence.fleet), *_of_sites(evidence.fleet)):
        if len(name) > LONGEST_COMMON_NAME:
            message = f"its certificate's name has {len(name)} characters; X.520 allows {LONGEST_COMMON_NAME}"
            yield fault("E618", key, message, f"shorten the domain by {len(name) - LONGEST_COMMON_NAME}")


def _of_laptops(fleet: Fleet) -> Iterator[tuple[str, str]]:
    """Yield the key and the name of each gateway of laptops; one that joins regions has another, no longer."""
    laptops = fleet.vpn.laptops if fleet.vpn else None
    for index, gateway in enumerate(laptops.gateways if laptops else ()):
        place = gateway.region or gateway.site
        yield f"vpn.laptops.gateways.{index}", f"{NAME_PREFIX}{place}.{fleet.domain}"


def _of_sites(fleet: Fleet) -> Iterator[tuple[str, str]]:
    """Yield the key and the name of each site that is joined to another by certificates."""
    if not fleet.vpn or fleet.vpn.tunnels.auth is not TunnelAuth.CERTIFICATES:
        return
    named = {other for site in fleet.sites.values() for other in site.gateway.joins}
    for name, site in fleet.sites.items():
        if site.gateway.joins or name in named:
            yield f"sites.{name}.gateway", f"{SITE_END}.{name}.{fleet.domain}"


NAME_RULES = (
    Rule("E410", "fleet-name", "It is the start of every resource's name.", "write it as lab"),
    Rule("E411", "bad-name", "It becomes part of names in AWS and DNS.", "write it as train"),
    Rule(
        "E412",
        "account-id",
        "Commands refuse to act in another account.",
        "write the twelve digits, quoted",
        "AWS IAM",
    ),
    Rule(
        "E413",
        "owner",
        "It is a tag's value on everything.",
        "write an address or a team",
        "AWS tag naming limits",
    ),
    Rule(
        "E414",
        "domain",
        "Every host has a name in it.",
        "write it as lab.internal",
        "RFC 1123, RFC 6761, RFC 6762",
    ),
    Rule("E415", "host-name", "It is one label of a name in DNS.", "write it as titan-01", "RFC 1123"),
)
