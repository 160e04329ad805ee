"""Private keys of the VPN as encrypted SSM parameters.

The only data in the account that is written outside Pulumi: no state file, log or plan may hold a private key.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Address

from bedplate.account.client import Door, NotThere, ask_regions, every_answer
from bedplate.errors import BedplateError, InputError, PartError
from bedplate.plan.fleet import FleetPlan
from bedplate.plan.pools import tunnel_secret
from bedplate.tunnel_key import SHORTEST_KEY

# Not a valid fleet name: `/<fleet>/*`, which nodes may read, never covers a key.
_PREFIX = "vpn_keys"


@dataclass(frozen=True, slots=True)
class ParameterKeys:
    """SSM parameters `/vpn_keys/<fleet>/<name>` in the home region, under the fleet's own key."""

    door: Door
    region: str
    fleet: str

    def read(self, name: str) -> str | None:
        """Return a text, or None where there is none; raises BedplateError as the door does."""
        try:
            reply = self.door.call("ssm", self.region, "get_parameter", Name=self._path(name), WithDecryption=True)
        except NotThere:
            return None
        return str(reply["Parameter"]["Value"])

    def write(self, texts: Mapping[str, str]) -> None:
        """Keep texts, each in place of what had its name."""
        for name, text in texts.items():
            self.door.call(
                "ssm",
                self.region,
                "put_parameter",
                Name=self._path(name),
                Value=text,
                Type="SecureString",
                KeyId=key_alias(self.fleet),
                Overwrite=True,
            )

    def _path(self, name: str) -> str:
        return f"/{_PREFIX}/{self.fleet}/{name}"


def key_alias(fleet: str) -> str:
    """Return the alias of the key that the stack `shared` makes for parameters."""
    return f"alias/{fleet}-parameters"


Resolvers = Mapping[str, tuple[IPv4Address, ...]]


@dataclass(frozen=True, slots=True)
class Doors:
    """The public address of each region's gateway, and the addresses of each region's resolver."""

    gateways: Mapping[str, IPv4Address]
    resolvers: Resolvers


def laptop_doors(door: Door, fleet: str, gateways: Iterable[str], resolvers: Iterable[str]) -> Doors:
    """Return the addresses in those regions; raises the first failure's error, InputError where one stands nowhere."""
    public = ask_regions(gateways, lambda region: _gateway(door, fleet, region))
    inside = ask_regions(resolvers, lambda region: _resolver(door, fleet, region))
    undone = "nothing was recorded"
    return Doors(every_answer(public, undone), every_answer(inside, undone))


def _gateway(door: Door, fleet: str, region: str) -> IPv4Address:
    wanted = [{"Name": "tag:Name", "Values": [f"{fleet}-laptops"]}]
    found = door.call("ec2", region, "describe_addresses", Filters=wanted)["Addresses"]
    if len(found) != 1:
        raise _missing(f"{region} has {len(found)} addresses that are called {fleet}-laptops", fleet, region)
    return IPv4Address(found[0]["PublicIp"])


def _resolver(door: Door, fleet: str, region: str) -> tuple[IPv4Address, ...]:
    wanted = [{"Name": "Name", "Values": [f"{fleet}-names"]}, {"Name": "Direction", "Values": ["INBOUND"]}]
    found = door.call("route53resolver", region, "list_resolver_endpoints", Filters=wanted)["ResolverEndpoints"]
    if len(found) != 1:
        raise _missing(f"{region} has {len(found)} resolvers that are called {fleet}-names", fleet, region)
    asked = {"ResolverEndpointId": found[0]["Id"]}
    told = door.call("route53resolver", region, "list_resolver_endpoint_ip_addresses", **asked)["IpAddresses"]
    return tuple(sorted(IPv4Address(each["Ip"]) for each in told))


def _missing(what: str, fleet: str, region: str) -> InputError:
    return InputError(what, fix=f"`pulumi up -s {fleet}.{region}` first; or name them: --address, --resolver")


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
