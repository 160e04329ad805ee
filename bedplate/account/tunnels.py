"""AWS's ends of the sites' tunnels: outside addresses and keys, read from the secrets in which `links` keeps them."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Address

from bedplate.account.door import Door
from bedplate.account.trouble import NotThere
from bedplate.errors import BedplateError, PartError
from bedplate.plan.fleet import FleetPlan
from bedplate.plan.names import tunnel_secret
from bedplate.tunnel_key import SHORTEST_KEY

_TUNNELS = 2
_ANOTHER = "give the tunnel a key of its own (`aws ec2 modify-vpn-tunnel-options`), then `pulumi up --refresh` of links"


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


def keys_of_sites(door: Door, plan: FleetPlan) -> Mapping[str, TunnelKeys | BedplateError]:
    """Return AWS's ends of each site's connections, or why they are not to be used.

    No two tunnels may have one key: whoever read it at one gateway could stand for the other.
    """
    asked = {site.name: _asked(door, plan, site.name) for site in plan.sites}
    return {**asked, **_alike({site: told for site, told in asked.items() if isinstance(told, TunnelKeys)})}


def _asked(door: Door, plan: FleetPlan, site: str) -> TunnelKeys | BedplateError:
    try:
        return tunnel_keys(door, plan, site)
    except BedplateError as error:
        return error


def _alike(told: Mapping[str, TunnelKeys]) -> Mapping[str, BedplateError]:
    """Return, by site, which tunnels have one key."""
    holders: dict[str, list[tuple[str, str]]] = {}
    for site, keys in told.items():
        for region, end in ((region, end) for region, both in keys.ends.items() for end in both):
            holders.setdefault(end.key, []).append((site, f"{site} to {end.address} in {region}"))
    shared = [each for each in holders.values() if len(each) > 1]
    return {
        site: PartError(f"tunnels have one key: {' and '.join(name for _, name in each)}", fix=_ANOTHER)
        for each in shared
        for site, _ in each
    }


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
    for end in ends:
        if len(end.key) < SHORTEST_KEY:
            raise PartError(
                f"the key to {end.address} in {name} has fewer than {SHORTEST_KEY} characters", fix=_ANOTHER
            )
    return ends[0], ends[1]


def _key(key: object) -> str:
    if not isinstance(key, str) or not key:
        raise ValueError
    return key
