"""Where laptops dial and ask for names, as AWS gave the addresses out: looked up by the names that stacks gave them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address

from bedplate.account.door import Door
from bedplate.account.regions import ask_regions, every_answer
from bedplate.errors import InputError

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
