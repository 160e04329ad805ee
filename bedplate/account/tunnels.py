"""AWS's ends of the sites' tunnels: outside addresses and keys, read from the secrets in which `links` keeps them."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Address

from bedplate.account.door import Door
from bedplate.account.trouble import NotThere
from bedplate.errors import PartError
from bedplate.plan.fleet import FleetPlan
from bedplate.plan.names import tunnel_secret

_TUNNELS = 2


class NotMade(PartError):
    """`links` has not made a site's connection to a region."""


@dataclass(frozen=True, slots=True)
class TunnelKey:
    """AWS's end of one tunnel: where it is dialled, and the key, which is not shown."""

    address: IPv4Address
    key: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class TunnelKeys:
    """Both tunnels of a site's connections, first and second, by region; `missing` are those not made yet."""

    ends: Mapping[str, tuple[TunnelKey, TunnelKey]]
    missing: Mapping[str, NotMade]


def tunnel_keys(door: Door, plan: FleetPlan, site: str) -> TunnelKeys:
    """Return AWS's ends of a site's connection to each region, as far as they are made.

    Raises PartError where a secret is not what `links` writes; what it holds is told to nobody.
    """
    ends: dict[str, tuple[TunnelKey, TunnelKey]] = {}
    missing: dict[str, NotMade] = {}
    for region in dict.fromkeys(tunnel.region for tunnel in plan.tunnels if tunnel.site == site):
        try:
            ends[region] = _keys(door, plan, site, region)
        except NotMade as error:
            missing[region] = error
    return TunnelKeys(ends, missing)


def _keys(door: Door, plan: FleetPlan, site: str, region: str) -> tuple[TunnelKey, TunnelKey]:
    name = tunnel_secret(plan.name, site, region)
    try:
        text = door.call("secretsmanager", plan.home.name, "get_secret_value", SecretId=name)["SecretString"]
    except NotThere:
        fix = f"make the connection first: `pulumi up -s {plan.name}.links`"
        raise NotMade(f"there is no secret {name} in {plan.home.name}", fix=fix) from None
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
