"""Names that certificates of the VPN's gateways bear: within what X.520 takes, before anything is built by them."""

from collections.abc import Iterator

from bedplate.checks.evidence import Evidence
from bedplate.checks.fault import Fault
from bedplate.checks.rules import fault
from bedplate.plan.laptops import NAME_PREFIX
from bedplate.plan.nodes import SITE_END
from bedplate.spec import Fleet
from bedplate.spec.vpn import TunnelAuth

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
