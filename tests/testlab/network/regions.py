"""Two regions of a plan with gateways that connect them; a router in each region acts as AWS.

    node -- vpc == internet == vpc -- node
             |                  |
 laptop -- gateway            gateway

A router has the routes of the stacks, and gives its gateway a public address by NAT: gateways have one interface.
All configuration is the product's, for the plan of a fleet file.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from ipaddress import IPv4Address, IPv4Network

from bedplate.plan import FleetPlan
from bedplate.plan.laptops import Transport, laptop_gateway_at
from bedplate.plan.links import region_peers
from bedplate.plan.nodes import LAPTOP_GATEWAY_HOST, permanent_nodes
from roles.hardened.firewall import ruleset
from tests.testlab.fleets.variants import LAB_PLAN, NORTH, PUBLIC, WEST, cellar_gateway, shared_keys
from tests.testlab.network.gateways import LabGateway, LabRouter
from tests.testlab.network.laptops import HERE, MACHINE, THERE, LaptopLab
from tests.testlab.network.netlab import Lab, LabHost, until
from tests.testlab.network.sites import AwsStandIn
from vpn.laptops.server import device, guard_rules
from vpn.sites.gateway import Gateway, PlaceProofs, region_gateway

_TRANSLATION = """
table ip lab_address {{
  chain in {{ type nat hook prerouting priority -100; ip daddr {public} dnat to {private}; }}
  chain out {{ type nat hook postrouting priority 100; ip saddr {private} oifname "wan0" snat to {public}; }}
}}
"""


@dataclass(frozen=True)
class LabRegion:
    """A region: its gateway, a node, and the router that acts as AWS."""

    plan: FleetPlan
    name: str
    gateway: LabGateway
    node: LabHost
    vpc: LabHost

    @property
    def block(self) -> IPv4Network:
        """The VPC's block."""
        return self.plan.region(self.name).block

    @property
    def address(self) -> IPv4Address:
        """The node's address, in the first node subnet."""
        return self.plan.region(self.name).zones[0].nodes[10]

    def start(self) -> None:
        """Write the gateway's files, load its packet filters, and start charon."""
        (node,) = (node for node in permanent_nodes(self.plan) if node.name == f"{LAPTOP_GATEWAY_HOST}.{self.name}")
        laptops = laptop_gateway_at(self.plan, self.name)
        assert laptops
        self.gateway.apply_config()
        for rules in (ruleset(node.firewall_rules, node.roles), guard_rules(laptops)):
            self.gateway.host.load_rules(rules)
        self.gateway.guard()
        self.gateway.start()

    def renew(self, word: str = "another key") -> None:
        """Give the gateway another key."""
        self.bring(shared_keys(self.plan, word))

    def bring(self, proofs: PlaceProofs) -> None:
        """Send the gateway new proofs, as the gateway agent does; charon loads them while it runs."""
        self.gateway.gateway = region_gateway(self.plan, self.name, proofs)
        self.gateway.apply_config()
        self.gateway.load()


@dataclass(frozen=True)
class RegionsLab:
    """The laboratory: both regions, a laptop at the first region's gateway, and the internet."""

    west: LabRegion
    north: LabRegion
    laptop: LabHost
    internet: LabHost

    def start(self) -> None:
        """Start both gateways."""
        for region in (self.west, self.north):
            region.start()

    def wait(self, seconds: float = 60) -> float:
        """Wait until a node of one region reaches a node of the other."""
        return until(lambda: self.west.node.pings(self.north.address, 1), seconds, f"nothing passes; {self.log_tails}")

    @property
    def log_tails(self) -> str:
        """The last lines of both gateways' logs."""
        return "\n".join(line for region in (self.west, self.north) for line in region.gateway.log.splitlines()[-12:])


@contextmanager
def regions_lab(plan: FleetPlan, proofs: PlaceProofs | None = None) -> Iterator[RegionsLab]:
    """Yield the wired laboratory of a plan with both regions, not started; by default with shared keys."""
    with Lab("regions") as lab:
        internet = lab.host("internet")
        known_by = proofs or shared_keys(plan)
        gateways = {name: region_gateway(plan, name, known_by) for name in (WEST, NORTH)}
        regions = {name: _region(lab, plan, gateway, internet) for name, gateway in gateways.items()}
        internet.forward()
        yield RegionsLab(regions[WEST], regions[NORTH], _laptop(lab, plan, regions[WEST]), internet)


def _region(lab: Lab, plan: FleetPlan, gateway: Gateway, internet: LabHost) -> LabRegion:
    name = gateway.name
    hosts: Mapping[str, LabHost] = {what: lab.host(f"{name[:2]}{what}") for what in ("vpc", "gate", "node")}
    vpc, gate, node = hosts["vpc"], hosts["gate"], hosts["node"]
    region = LabRegion(plan, name, LabGateway(gate, gateway), node, vpc)
    zone, public = plan.region(name).zones[0], PUBLIC[name]
    _wire(lab, vpc, gate, zone.edge, zone.edge[9])
    _wire(lab, vpc, node, zone.nodes, region.address)
    lab.wire((internet, name[:2], f"{public - 1}/24"), (vpc, "wan0", f"{public}/24"))
    vpc.route("default", public - 1)
    vpc.forward()
    for peer in region_peers(plan, name):
        for block in peer.blocks:
            vpc.route(block, zone.edge[9])
    (pool,) = (pool.block for pool in plan.laptops if pool.place == name)
    vpc.route(pool, zone.edge[9])
    vpc.load_rules(_TRANSLATION.format(public=public, private=zone.edge[9]))
    return region


def _wire(lab: Lab, vpc: LabHost, host: LabHost, subnet: IPv4Network, address: IPv4Address) -> None:
    """Put a host in a subnet, whose first address is the router's."""
    size = subnet.prefixlen
    lab.wire((vpc, host.name, f"{subnet[1]}/{size}"), (host, "eth0", f"{address}/{size}"))
    host.route("default", subnet[1])


def _laptop(lab: Lab, plan: FleetPlan, region: LabRegion) -> LabHost:
    """Connect a laptop to a gateway with a wire instead of OpenVPN."""
    laptops = laptop_gateway_at(plan, region.name)
    assert laptops
    laptop, block = lab.host("laptop"), laptops.block(Transport.UDP)
    own = laptops.address(Transport.UDP, 0)
    far = (region.gateway.host, device(Transport.UDP), f"{block[1]}/{block.prefixlen}")
    lab.wire((laptop, "eth0", f"{own}/{block.prefixlen}"), far)
    laptop.route("default", block[1])
    return laptop


REGION = "us-west-2"
_ROUTER, _NEXT = IPv4Address("169.254.9.2"), IPv4Address("198.51.100.2")


class ChainLab(LaptopLab):
    """The laboratory of the complete path; `tunnels` is the site's gateway, `aws` the other end."""

    tunnels: LabGateway
    aws: AwsStandIn

    def start(self) -> None:
        """Start AWS's end, then the site's as its units do, and each gateway's daemons for laptops."""
        self.aws.start()
        self.tunnels.apply_config()
        self.tunnels.guard()
        self.tunnels.start()
        LabRouter(self.tunnels.host).start((self.tunnels.host.folder / "root/etc/frr/frr.conf").read_text())
        for gateway in self.gateways.values():
            gateway.start()
        until(lambda: self.node.pings(MACHINE, 1), 60, f"region and site are not joined; {self.tunnels.log[-1500:]}")

    def _join(self, west: LabHost, gate: LabHost) -> None:
        gateway, far = _gateway(), self._lab.host("aws")
        self._lab.wire((west, "links0", f"{_ROUTER - 1}/30"), (far, "vpc0", f"{_ROUTER}/30"))
        self._lab.wire((self.net, "aws", f"{_NEXT - 1}/30"), (far, "wan0", f"{_NEXT}/30"))
        far.forward()
        for tunnel in gateway.tunnels:
            far.run("ip", "address", "add", f"{tunnel.far.outside}/32", "dev", "wan0")
            # No default route: AWS's router drops packets outside the tunnels.
            far.route(f"{tunnel.near.outside}/32", _NEXT - 1)
            self.net.route(f"{tunnel.far.outside}/32", _NEXT)
        for block in HERE:
            far.route(block, _ROUTER - 1)
        for block in THERE:
            west.route(block, _ROUTER)
        region = LAB_PLAN.region(REGION)
        self.tunnels = LabGateway(gate, gateway)
        self.aws = AwsStandIn(far, gateway, (str(region.block), HERE[1]))


def _gateway() -> Gateway:
    """Return the site's gateway with tunnels to one region only."""
    whole = cellar_gateway()
    return replace(whole, tunnels=tuple(tunnel for tunnel in whole.tunnels if tunnel.name.startswith(REGION)))
