"""What a fleet file asks of the address space: every block but the subnets, in the order of the file.

A site's LAN is wanted like any other block, although nobody allots it: once recorded it stays held when the
site is taken out, so that nothing else stands on it when the site comes back.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto
from ipaddress import IPv4Network

from bedplate.plan import paths
from bedplate.plan.direct import joined_sites
from bedplate.spec import Fleet

TUNNEL_PREFIX = 30
TUNNEL_NUMBERS = (1, 2)  # AWS builds every connection as two tunnels, in two zones
PODS_WIDEST, PODS_NARROWEST = 13, 18


class Kind(Enum):
    """What a block is for, which decides where it is looked for."""

    REGION = auto()
    SITE = auto()
    PODS = auto()
    SERVICES = auto()
    LAPTOPS = auto()
    TUNNEL = auto()


@dataclass(frozen=True, slots=True)
class Want:
    """One block that the file asks for; `key` is where it says so.

    `declared` is the block itself where the file names it; `sized` tells that the file names the size, so
    that another size in the lock is a contradiction, not an older default.
    """

    kind: Kind
    path: str
    key: str
    prefix: int
    declared: IPv4Network | None = None
    sized: bool = False

    def contradicts(self, recorded: IPv4Network) -> bool:
        """Tell whether the file asks for another block or size than the lock holds."""
        if self.declared is not None:
            return self.declared != recorded
        return self.sized and self.prefix != recorded.prefixlen


def wants(fleet: Fleet) -> tuple[Want, ...]:
    """Return every block that the file asks for, subnets left out."""
    ours = (*_regions(fleet), *_sites(fleet), *_kubernetes(fleet), *_laptops(fleet))
    return (*ours, *_tunnels(fleet), *_directs(fleet))


def _regions(fleet: Fleet) -> Iterator[Want]:
    for name, region in fleet.regions.items():
        path = paths.region_path(name)
        if region.block is None:
            yield Want(Kind.REGION, path, "network.region_size", fleet.network.region_size)
        else:
            yield Want(Kind.REGION, path, f"regions.{name}.block", region.block.prefixlen, region.block)


def _sites(fleet: Fleet) -> Iterator[Want]:
    for name, site in fleet.sites.items():
        yield Want(Kind.SITE, paths.site_path(name), f"sites.{name}.lan", site.lan.prefixlen, site.lan)


def _kubernetes(fleet: Fleet) -> Iterator[Want]:
    cluster = fleet.kubernetes
    if cluster is None:
        return
    eighth = min(max(fleet.network.supernet.prefixlen + 3, PODS_WIDEST), PODS_NARROWEST)
    pods = eighth if cluster.pods is None else cluster.pods
    given = cluster.model_fields_set
    yield Want(Kind.PODS, paths.PODS, "kubernetes.pods", pods, sized=cluster.pods is not None)
    yield Want(Kind.SERVICES, paths.SERVICES, "kubernetes.services", cluster.services, sized="services" in given)


def _laptops(fleet: Fleet) -> Iterator[Want]:
    laptops = fleet.vpn.laptops if fleet.vpn else None
    if laptops is None:
        return
    sized = "pool" in laptops.model_fields_set
    for gateway in laptops.gateways:
        path = paths.pool_path(gateway.region or gateway.site or "")
        yield Want(Kind.LAPTOPS, path, "vpn.laptops.pool", laptops.pool, sized=sized)


def _tunnels(fleet: Fleet) -> Iterator[Want]:
    for site in fleet.sites:
        for region in fleet.regions:
            for number in TUNNEL_NUMBERS:
                path = paths.tunnel_path(site, region, number)
                yield Want(Kind.TUNNEL, path, f"sites.{site}", TUNNEL_PREFIX)


def _directs(fleet: Fleet) -> Iterator[Want]:
    for one, other in joined_sites(fleet):
        yield Want(Kind.TUNNEL, paths.direct_path(one, other), f"sites.{one}.gateway", TUNNEL_PREFIX)
