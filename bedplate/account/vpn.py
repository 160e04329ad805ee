"""Secrets and addresses of the VPN: private keys in SSM, laptop gateways and resolvers, AWS's tunnel keys.

The private keys are the only data in the account that is not written by Pulumi: no state file, log or plan may contain
one.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Address

from bedplate.account.client import AwsClient, ask_regions, require_all
from bedplate.errors import BedplateError, InputError, PartialError
from bedplate.foreign import parse_json
from bedplate.plan.fleet import FleetPlan
from bedplate.plan.pools import tunnel_secret
from bedplate.tunnels import SHORTEST_KEY

# Not a valid fleet name: nodes may read `/<fleet>/*`, which never matches a key.
_PREFIX = "vpn_keys"


@dataclass(frozen=True, slots=True)
class ParameterKeys:
    """The SSM parameters `/vpn_keys/<fleet>/<name>` in the home region, encrypted with the fleet's KMS key."""

    client: AwsClient
    region: str
    fleet: str

    def read(self, name: str) -> str | None:
        """Return a text, or None if there is none; raises like `AwsClient.call`."""
        reply = self.client.find("ssm", self.region, "get_parameter", Name=self._path(name), WithDecryption=True)
        return str(reply["Parameter"]["Value"]) if reply else None

    def write(self, texts: Mapping[str, str]) -> None:
        """Write texts by name, replacing existing ones."""
        secret = {"Type": "SecureString", "KeyId": key_alias(self.fleet), "Overwrite": True}
        for name, text in texts.items():
            self.client.call("ssm", self.region, "put_parameter", Name=self._path(name), Value=text, **secret)

    def _path(self, name: str) -> str:
        return f"/{_PREFIX}/{self.fleet}/{name}"


def key_alias(fleet: str) -> str:
    """Return the alias of the KMS key for parameters, which the stack `shared` creates."""
    return f"alias/{fleet}-parameters"


Resolvers = Mapping[str, tuple[IPv4Address, ...]]


@dataclass(frozen=True, slots=True)
class LaptopEndpoints:
    """The public address of each region's gateway, and the addresses of each region's resolver."""

    gateways: Mapping[str, IPv4Address]
    resolvers: Resolvers


def read_laptop_endpoints(
    client: AwsClient, fleet: str, gateways: Iterable[str], resolvers: Iterable[str]
) -> LaptopEndpoints:
    """Return the addresses in these regions; raises the first error, InputError for a missing gateway or resolver."""
    public = ask_regions(gateways, lambda region: _gateway(client, fleet, region))
    private = ask_regions(resolvers, lambda region: _resolver(client, fleet, region))
    undone = "nothing was recorded"
    return LaptopEndpoints(require_all(public, undone), require_all(private, undone))


def _gateway(client: AwsClient, fleet: str, region: str) -> IPv4Address:
    filters = [{"Name": "tag:Name", "Values": [f"{fleet}-laptops"]}]
    addresses = client.call("ec2", region, "describe_addresses", Filters=filters)["Addresses"]
    if len(addresses) != 1:
        raise _not_unique(f"{region}: {len(addresses)} elastic addresses named {fleet}-laptops", region)
    return IPv4Address(addresses[0]["PublicIp"])


def _resolver(client: AwsClient, fleet: str, region: str) -> tuple[IPv4Address, ...]:
    filters = [{"Name": "Name", "Values": [f"{fleet}-names"]}, {"Name": "Direction", "Values": ["INBOUND"]}]
    endpoints = client.call("route53resolver", region, "list_resolver_endpoints", Filters=filters)["ResolverEndpoints"]
    if len(endpoints) != 1:
        raise _not_unique(f"{region}: {len(endpoints)} resolver endpoints named {fleet}-names", region)
    query = {"ResolverEndpointId": endpoints[0]["Id"]}
    addresses = client.call("route53resolver", region, "list_resolver_endpoint_ip_addresses", **query)["IpAddresses"]
    return tuple(sorted(IPv4Address(entry["Ip"]) for entry in addresses))


def _not_unique(what: str, region: str) -> InputError:
    fix = f"run `bedplate up --stack {region}` first"
    return InputError(f"{what}, expected 1", fix=fix)


_TUNNELS = 2
_NEW_KEY = (
    "set a new key (`aws ec2 modify-vpn-tunnel-options`), then `bedplate refresh --stack links` and `bedplate up`"
)


class ConnectionMissing(PartialError):
    """The stack `links` has not created a site's connection to a region."""


@dataclass(frozen=True, slots=True)
class TunnelKey:
    """AWS's end of one tunnel: its public address, and the pre-shared key, hidden in `repr`."""

    address: IPv4Address
    key: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class TunnelKeys:
    """Both tunnels of a site's connections by region; `missing` are connections that do not exist yet."""

    ends: Mapping[str, tuple[TunnelKey, TunnelKey]]
    missing: Mapping[str, ConnectionMissing]


def read_site_keys(client: AwsClient, plan: FleetPlan) -> Mapping[str, TunnelKeys | BedplateError]:
    """Return AWS's ends of each site's connections, or an error for a site whose keys must not be used.

    Two tunnels must not share a key: with the key of one gateway, an attacker could impersonate the other.
    """
    results = {site.name: _keys_or_error(client, plan, site.name) for site in plan.sites}
    return {**results, **_shared_keys({site: keys for site, keys in results.items() if isinstance(keys, TunnelKeys)})}


def _keys_or_error(client: AwsClient, plan: FleetPlan, site: str) -> TunnelKeys | BedplateError:
    try:
        return read_tunnel_keys(client, plan, site)
    except BedplateError as error:
        return error


def _shared_keys(keys_by_site: Mapping[str, TunnelKeys]) -> Mapping[str, BedplateError]:
    """Return an error for each site with a tunnel whose key another tunnel uses."""
    tunnels_by_key: dict[str, list[tuple[str, str]]] = {}
    for site, keys in keys_by_site.items():
        for region, end in ((region, end) for region, both in keys.ends.items() for end in both):
            tunnels_by_key.setdefault(end.key, []).append((site, f"{site} to {end.address} in {region}"))
    shared = [tunnels for tunnels in tunnels_by_key.values() if len(tunnels) > 1]
    return {
        site: PartialError(f"tunnels share a key: {' and '.join(name for _, name in tunnels)}", fix=_NEW_KEY)
        for tunnels in shared
        for site, _ in tunnels
    }


def read_tunnel_keys(client: AwsClient, plan: FleetPlan, site: str) -> TunnelKeys:
    """Return AWS's ends of a site's connections to regions, and the connections that do not exist yet.

    Raises PartialError for a malformed secret; the message never contains its text.
    """
    ends: dict[str, tuple[TunnelKey, TunnelKey]] = {}
    missing: dict[str, ConnectionMissing] = {}
    for region in dict.fromkeys(tunnel.region for tunnel in plan.tunnels if tunnel.site == site):
        try:
            ends[region] = _read_secret(client, plan, site, region)
        except ConnectionMissing as error:
            missing[region] = error
    return TunnelKeys(ends, missing)


def _read_secret(client: AwsClient, plan: FleetPlan, site: str, region: str) -> tuple[TunnelKey, TunnelKey]:
    name = tunnel_secret(plan.name, site, region)
    secret = client.find("secretsmanager", plan.home.name, "get_secret_value", SecretId=name)
    if secret is None:
        fix = "create the connection first: `bedplate up --stack links`"
        raise ConnectionMissing(f"no secret {name} in {plan.home.name}", fix=fix)
    return _parse_secret(name, secret["SecretString"])


def _parse_secret(name: str, text: str) -> tuple[TunnelKey, TunnelKey]:
    """Return the tunnel ends in a secret: JSON that maps addresses to keys, in the order of the tunnels."""
    try:
        ends = [TunnelKey(IPv4Address(address), _key(key)) for address, key in parse_json(text).items()]
    except (ValueError, AttributeError):
        ends = []
    if len(ends) != _TUNNELS:
        raise PartialError(
            f"the secret {name} does not contain two tunnels",
            fix="run `bedplate refresh --stack links`, then `bedplate up`",
        )
    for end in ends:
        if len(end.key) < SHORTEST_KEY:
            message = f"the key for {end.address} in {name} is shorter than {SHORTEST_KEY} characters"
            raise PartialError(message, fix=_NEW_KEY)
    return ends[0], ends[1]


def _key(key: object) -> str:
    if not isinstance(key, str) or not key:
        raise ValueError
    return key
