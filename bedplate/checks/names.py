"""Names: their syntax, and the limits of AWS, DNS and certificates for names that bedplate builds from them."""

from collections.abc import Iterator
from functools import partial

from bedplate.checks.diagnostics import Context
from bedplate.checks.ladders import keyed_rungs
from bedplate.checks.sites import HOST_NAME_TOO_LONG
from bedplate.plan.fleet import member_name
from bedplate.plan.laptops import NAME_PREFIX
from bedplate.plan.nodes import SITE_GATEWAY_HOST
from bedplate.plan.pools import pool_name
from bedplate.rules import Fault, Rule, fault
from bedplate.spec import Fleet
from bedplate.spec.network import TunnelAuth
from bedplate.spec.text import LONGEST

# Amazon EC2 API reference, CreateLaunchTemplate; an Auto Scaling group allows 255.
LONGEST_TEMPLATE = 128


def check_names(context: Context) -> Iterator[Fault]:
    """Yield faults of groups whose pools or machines would have names that are too long or already used."""
    fleet = context.fleet
    yield from _check_control_plane_names(fleet)
    for name, group in fleet.groups.items():
        for key, rung in keyed_rungs(name, group):
            # The name of a pool of one zone contains the zone, one letter longer than the region.
            place = rung.zone or f"{rung.region}a"
            template = f"{fleet.name}-{pool_name(name, rung, place)}"
            if len(template) > LONGEST_TEMPLATE:
                message = (
                    f"the launch template {template[:20]}... has {len(template)} characters; "
                    f"EC2 allows {LONGEST_TEMPLATE}"
                )
                yield fault(NAME_TOO_LONG, key, message)
            host = f"{name}-{group.nodes.max}.{rung.region}.{fleet.domain}"
            if group.use.is_ssh and len(host) > LONGEST:
                message = f"the full name of a machine has {len(host)} characters; RFC 1123 allows {LONGEST}"
                yield fault(HOST_NAME_TOO_LONG, f"groups.{name}", message)
                break


def _check_control_plane_names(fleet: Fleet) -> Iterator[Fault]:
    """Yield faults of SSH groups whose machines would have the names of the control plane."""
    home = next((name for name, region in fleet.regions.items() if region.home), "")
    first = member_name(1, home)
    for name, group in fleet.groups.items() if fleet.kubernetes else ():
        regions = {rung.region for rung in group.ladder}
        if group.use.is_ssh and home in regions and f"{name}-1.{home}" == first:
            yield fault(CONTROL_PLANE_NAME, f"groups.{name}", f"{first} is already a machine of the control plane")


# RFC 5280, appendix A.1: ub-common-name.
LONGEST_COMMON_NAME = 64


def check_certificate_names(context: Context) -> Iterator[Fault]:
    """Yield faults of gateways whose names are too long for a certificate."""
    for key, name in (*_laptop_gateways(context.fleet), *_site_gateways(context.fleet)):
        if len(name) > LONGEST_COMMON_NAME:
            message = f"the name of its certificate has {len(name)} characters; X.520 allows {LONGEST_COMMON_NAME}"
            yield fault(
                CERTIFICATE_NAME_TOO_LONG, key, message, f"shorten the domain by {len(name) - LONGEST_COMMON_NAME}"
            )


def _laptop_gateways(fleet: Fleet) -> Iterator[tuple[str, str]]:
    """Yield key and certificate name of each laptop gateway; its name for tunnels between regions is not longer."""
    laptops = fleet.vpn.laptops if fleet.vpn else None
    for index, gateway in enumerate(laptops.gateways if laptops else ()):
        place = gateway.region or gateway.site
        yield f"vpn.laptops.gateways.{index}", f"{NAME_PREFIX}{place}.{fleet.domain}"


def _site_gateways(fleet: Fleet) -> Iterator[tuple[str, str]]:
    """Yield key and certificate name of each site with a tunnel to another site, if tunnels use certificates."""
    if not fleet.vpn or fleet.vpn.tunnels.auth is not TunnelAuth.CERTIFICATES:
        return
    listed = {other for site in fleet.sites.values() for other in site.gateway.joins}
    for name, site in fleet.sites.items():
        if site.gateway.joins or name in listed:
            yield f"sites.{name}.gateway", f"{SITE_GATEWAY_HOST}.{name}.{fleet.domain}"


CHECKS = (check_names, check_certificate_names)
_group_rule = partial(Rule, section="groups")
NAME_TOO_LONG = _group_rule(
    "E350",
    "The name of a pool contains fleet, group, place and market.",
    "shorten the name of the group",
    "EC2 API, CreateLaunchTemplate",
)
CONTROL_PLANE_NAME = _group_rule("E353", "Machines of the control plane already have these names.", "rename the group")
_vpn_rule = partial(Rule, section="vpn")
CERTIFICATE_NAME_TOO_LONG = _vpn_rule(
    "E618",
    "The certificate of a gateway contains its full name.",
    "shorten the domain",
    "X.520; RFC 5280, appendix A.1",
)
