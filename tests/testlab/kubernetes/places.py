"""The places of a whole cluster: two regions behind their routers, and the site of `LaptopLab` behind its gateway."""

import ctypes
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from ipaddress import IPv4Address
from pathlib import Path

from bedplate.plan.links import cluster_blocks
from bedplate.tunnels import TUNNEL_MTU
from tests.testlab.fleets.variants import lab_plan
from tests.testlab.network.laptops import HERE, NODE, THERE, LaptopLab
from tests.testlab.network.netlab import Lab, LabHost

HOME, EAST, SITE = "us-west-2", "us-east-1", "cellar"
WORKERS = {HOME: "10.64.32.40", EAST: "10.65.32.40"}
"""The addresses of the workers of regions."""
_EAST_BLOCK = "10.65.0.0/16"
# Links between the router of the home region, on the first address, and another place.
_EAST_LINK, _SITE_LINK = ("169.254.11.1", "169.254.11.2"), ("169.254.10.1", "169.254.10.2")
# The largest packet in a VPC, and between regions.
_VPC_MTU, _REGIONS_MTU = 9001, 8500
_CLONE_NEWNET = 0x40000000


@contextmanager
def inside(host: LabHost) -> Iterator[None]:
    """Run the block in the network of a host: this thread, and the threads and processes that it starts."""
    libc = ctypes.CDLL(None, use_errno=True)

    def enter(file: int) -> None:
        if libc.setns(file, _CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), host.namespace)

    with Path("/proc/thread-self/ns/net").open() as before, Path(f"/run/netns/{host.namespace}").open() as there:
        enter(there.fileno())
        try:
            yield
        finally:
            enter(before.fileno())


def wire_places(lab: LaptopLab, vpc: Lab, members: Mapping[IPv4Address, LabHost]) -> dict[str, LabHost]:
    """Connect the places, with the routes of AWS; return the hosts of the workers of regions.

    The first member is the pods router.
    """
    region, west, gate = lab.node, lab.gateways[HOME].host, lab.gateways[SITE].host
    east, workers = vpc.host("east"), {place: vpc.host(place) for place in WORKERS}
    east.forward()
    _link(vpc, (region, "east0"), (east, "home0"), _EAST_LINK, _REGIONS_MTU)
    _link(vpc, (region, "site0"), (gate, "aws0"), _SITE_LINK, TUNNEL_MTU)
    east.route("default", _EAST_LINK[0])
    region.route(_EAST_BLOCK, _EAST_LINK[1])
    for block in HERE:
        gate.route(block, _SITE_LINK[0])
    for block in THERE:
        region.route(block, _SITE_LINK[1])
        west.route(block, NODE)
    # Machines of the region are behind its router.
    region.run("sysctl", "-qw", "net.ipv4.conf.lan0.proxy_arp=1")
    for address, host in {**members, IPv4Address(WORKERS[HOME]): workers[HOME]}.items():
        _plug(vpc, region, host, address)
    _plug(vpc, east, workers[EAST], IPv4Address(WORKERS[EAST]))
    router = next(iter(members))
    for host in (*(host for address, host in members.items() if address != router), workers[HOME]):
        _check_senders(region, host)
    _check_senders(east, workers[EAST])
    for pods in cluster_blocks(lab_plan()).values():
        region.route(pods, router)
        west.route(pods, NODE)
        gate.route(pods, _SITE_LINK[0])
    return workers


def _link(vpc: Lab, near: tuple[LabHost, str], far: tuple[LabHost, str], addresses: tuple[str, str], mtu: int) -> None:
    """Connect two routers."""
    vpc.wire((*near, f"{addresses[0]}/30"), (*far, f"{addresses[1]}/30"))
    for host, device in (near, far):
        host.run("ip", "link", "set", device, "mtu", str(mtu))


def _device(host: LabHost) -> str:
    """Return the name of a router's device to a machine."""
    return host.name.partition(".")[0]


def _plug(vpc: Lab, router: LabHost, host: LabHost, address: IPv4Address) -> None:
    """Connect a machine with the router of its region."""
    device = _device(host)
    vpc.wire((host, "ens5", f"{address}/32"), (router, device, ""))
    for end, name in ((host, "ens5"), (router, device)):
        end.run("ip", "link", "set", name, "mtu", str(_VPC_MTU))
    router.run("ip", "route", "add", f"{address}/32", "dev", device)
    router.run("sysctl", "-qw", f"net.ipv4.conf.{device}.proxy_arp=1")
    host.run("ip", "route", "add", f"{NODE}/32", "dev", "ens5")
    host.route("default", NODE)
    host.forward()


def _check_senders(router: LabHost, host: LabHost) -> None:
    """Drop what a machine sends in another name, as AWS does."""
    address = host.run("ip", "-br", "-4", "address", "show", "ens5").split()[2].removesuffix("/32")
    device = _device(host)
    chain = f"type filter hook forward priority 0; iifname {device} ip saddr != {address} counter drop;"
    router.load_rules(f"table ip aws_{device.replace('-', '_')} {{ chain forward {{ {chain} }}; }}\n")
