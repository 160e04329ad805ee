"""AWS's ends of the sites' tunnels: outside addresses and keys, read from the secrets in which `links` keeps them."""

import json
from dataclasses import dataclass, field
from ipaddress import IPv4Address

from bedplate.account.door import Door
from bedplate.account.trouble import NotThere
from bedplate.errors import PartError
from bedplate.plan.fleet import FleetPlan
from bedplate.plan.names import tunnel_secret

_TUNNELS = 2


@dataclass(frozen=True, slots=True)
class TunnelKey:
    """AWS's end of one tunnel: where it is dialled, and the key, which is not shown."""

    address: IPv4Address
    key: str = field(repr=False)


def tunnel_keys(door: Door, plan: FleetPlan, site: str) -> dict[str, tuple[TunnelKey, TunnelKey]]:
    """Return both tunnels of a site's connection to each region, first and second, by region.

    Raises PartError where a secret is not there or is not what `links` writes; what it holds is told to nobody.
    """
    regions = dict.fromkeys(tunnel.region for tunnel in plan.tunnels if tunnel.site == site)
    return {region: _keys(door, plan, site, region) for region in regions}


def _keys(door: Door, plan: FleetPlan, site: str, region: str) -> tuple[TunnelKey, TunnelKey]:
    name = tunnel_secret(plan.name, site, region)
    try:
        text = door.call("secretsmanager", plan.home.name, "get_secret_value", SecretId=name)["SecretString"]
    except NotThere:
        fix = f"make the connection first: `pulumi up -s {plan.name}.links`"
        raise PartError(f"there is no secret {name} in {plan.home.name}", fix=fix) from None
    return _told(name, text)


def _told(name: str, text: str) -> tuple[TunnelKey, TunnelKey]:
    """Return the ends of a secret, which is a mapping of addresses to keys in the order of the tunnels."""
    try:
        ends = [TunnelKey(IPv4Address(address), _key(key)) for address, key in json.loads(text).items()]
    except (ValueError, AttributeError):
        ends = []
    if len(ends) != _TUNNELS:
        fix = "`pulumi up --refresh` of links writes it anew"
        raise PartError(f"the secret {name} holds no two tunnels", fix=fix)
    return ends[0], ends[1]


def _key(key: object) -> str:
    if not isinstance(key, str) or not key:
        raise ValueError
    return key
