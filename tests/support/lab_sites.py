"""Two sites of a plan that join each other, in a laboratory; AWS's stand-in between them as the way round.

    desk -- cellar == internet == attic -- rack
                         |
                        aws

Each site has one tunnel to AWS here, where a real one has two. Each text that the sites run is the product's own. A
site may be hidden: behind a router that translates, and hands it nobody's first packet.
"""

from collections.abc import Container, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from ipaddress import IPv4Address

from bedplate.plan import FleetPlan
from bedplate.plan.fleet import SitePlan
from bedplate.plan.nodes import standing_nodes
from roles.hardened.filter import ruleset
from tests.support.aws_stand_in import AwsStandIn, bgp_with
from tests.support.direct_fleet import ATTIC, CELLAR, REGION, direct_gateway, one_secret, site_of
from tests.support.lab_gateway import LabGateway
from tests.support.lab_router import LabRouter
from tests.support.netlab import Lab, LabHost, LabTrouble
from tests.support.netlab_program import until
from tests.support.userspace import with_handover
from vpn.sites.gateway import Gateway
from vpn.sites.proof import PlaceProofs

_PORTS = (7000, 7100)
# Of documentation (RFC 5737): between a hidden gateway and its router.
_ROUTER, _HIDDEN = "192.0.2.1", "192.0.2.2"
_TRANSLATION = 'table ip lab { chain out { type nat hook postrouting priority 100; oifname "wan0" masquerade; }; }'
_CUT = """
table inet lab_direct
delete table inet lab_direct
table inet lab_direct {{
  chain between {{ type filter hook forward priority 0; {rules} }}
}}
"""


@dataclass(frozen=True)
class LabSite:
    """A site: its gateway, with its router, and a machine of its LAN."""

    plan: FleetPlan
    site: SitePlan
    gateway: LabGateway
    router: LabRouter
    machine: LabHost

    @property
    def address(self) -> IPv4Address:
        """The machine's address."""
        return self.site.lan[21]

    def prepare(self) -> None:
        """Lay the gateway's files, and load its packet filters, as its roles do before it has a tunnel."""
        name = f"{self.site.gateway}.{self.site.name}"
        (node,) = (each for each in standing_nodes(self.plan) if each.name == name)
        self.gateway.lay()
        self.gateway.ground()
        self.gateway.host.load_rules(with_handover(ruleset(node.doors, node.duties)))

    def start(self) -> None:
        """Hand each peer to its charon, and start charons and BGP, as the gateway's units do."""
        self.gateway.guard()
        self.gateway.start()
        self.router.start((self.gateway.host.folder / "root/etc/frr/frr.conf").read_text())

    def way_to(self, address: IPv4Address) -> str:
        """Return by what the gateway leads to an address; nothing where nothing leads there."""
        try:
            return self.gateway.host.run("ip", "route", "get", str(address))
        except LabTrouble:
            return ""


@dataclass(frozen=True)
class SitesLab:
    """The laboratory: both sites, the internet between them, and AWS."""

    attic: LabSite
    cellar: LabSite
    internet: LabHost
    aws: LabHost
    stands: tuple[AwsStandIn, ...]

    @property
    def sites(self) -> tuple[LabSite, LabSite]:
        """Both sites, who dials first."""
        return self.attic, self.cellar

    def start(self) -> None:
        """Start AWS's end, then both sites: the second when the first has dialled it in vain."""
        self.start_aws()
        for site in self.sites:
            site.prepare()
        self.attic.start()
        until(lambda: "retransmit 2" in self.attic.gateway.log, 30, "the first never dials the second")
        self.cellar.start()

    def start_aws(self) -> None:
        """Start AWS's end of each site's tunnel, and its router between them."""
        for stand in self.stands:
            stand.hand_over()
            stand.start_tunnel(0, stand.site.tunnels[0])
        LabRouter(self.aws).start(bgp_with(tuple(stand.site for stand in self.stands), self.stands[0].blocks))

    def wait(self, seconds: float = 60) -> float:
        """Wait until the machine of the one site answers that of the other."""
        return until(lambda: self.cellar.machine.pings(self.attic.address, 1), seconds, f"nothing passes; {self.told}")

    def is_direct(self) -> bool:
        """Tell whether both sites lead to each other by their direct tunnel."""
        pairs = ((self.attic, self.cellar), (self.cellar, self.attic))
        return all(f"via {_inside(here, there)} " in here.way_to(there.address) for here, there in pairs)

    def cut_direct(self) -> None:
        """Lose whatever one gateway sends the other; what either sends to AWS passes."""
        one, other = (each.site.public for each in self.sites)
        self.internet.load_rules(
            _CUT.format(rules=f"ip saddr {{ {one}, {other} }} ip daddr {{ {one}, {other} }} drop;")
        )

    def heal(self) -> None:
        """Lose nothing any more."""
        self.internet.load_rules(_CUT.format(rules=""))

    @property
    def told(self) -> str:
        """The last lines of both gateways' logs."""
        return "\n".join(line for one in self.sites for line in one.gateway.log.splitlines()[-12:])


def _inside(here: LabSite, there: LabSite) -> IPv4Address:
    (tunnel,) = (one for one in here.gateway.gateway.tunnels if one.name == f"{there.site.name}-site")
    assert tunnel.far.inside
    return tunnel.far.inside.ip


@contextmanager
def sites_lab(plan: FleetPlan, proofs: PlaceProofs = one_secret, hidden: Container[str] = ()) -> Iterator[SitesLab]:
    """Give the laboratory of a plan, wired, with nothing started yet."""
    with Lab("sites") as lab:
        internet, aws = lab.host("internet"), lab.host("aws")
        made = [
            _site(lab, plan, first_only(plan, name, proofs), name, _door(lab, plan, name, internet, hidden))
            for name in (ATTIC, CELLAR)
        ]
        lab.wire((internet, "a0", "203.0.113.1/24"), (aws, "wan0", "203.0.113.250/24"))
        aws.route("default", "203.0.113.1")
        stands = tuple(_stand_in(aws, plan, one, port) for one, port in zip(made, _PORTS, strict=True))
        internet.forward()
        aws.forward()
        yield SitesLab(made[0], made[1], internet, aws, stands)


def _door(lab: Lab, plan: FleetPlan, name: str, internet: LabHost, hidden: Container[str]) -> LabHost:
    """Return a site's gateway, which the internet reaches at its public address; behind a router if it is hidden."""
    site, gate = site_of(plan, name), lab.host(name)
    front = lab.host(f"{name}rt") if name in hidden else gate
    lab.wire((internet, name, f"{site.public - 1}/24"), (front, "wan0", f"{site.public}/24"))
    front.route("default", site.public - 1)
    if front is not gate:
        lab.wire((front, "lan0", f"{_ROUTER}/24"), (gate, "wan0", f"{_HIDDEN}/24"))
        gate.route("default", _ROUTER)
        front.forward()
        front.load_rules(_TRANSLATION)
    return gate


def _site(lab: Lab, plan: FleetPlan, gateway: Gateway, name: str, gate: LabHost) -> LabSite:
    site, machine = site_of(plan, name), lab.host(f"{name}pc")
    size = site.lan.prefixlen
    made = LabSite(plan, site, LabGateway(gate, gateway), LabRouter(gate), machine)
    lab.wire((gate, "lan0", f"{site.lan[1]}/{size}"), (machine, "eth0", f"{made.address}/{size}"))
    machine.route("default", site.lan[1])
    return made


def first_only(plan: FleetPlan, name: str, proofs: PlaceProofs) -> Gateway:
    """Return a site's gateway with one tunnel to AWS, and its direct ones."""
    gateway = direct_gateway(plan, name, proofs)
    return replace(gateway, tunnels=tuple(one for one in gateway.tunnels if one.name != f"{REGION}-2"))


def _stand_in(aws: LabHost, plan: FleetPlan, site: LabSite, port: int) -> AwsStandIn:
    """Stand AWS's end of a site's tunnel at its address; the tunnel goes by the name of the site there."""
    gateway = site.gateway.gateway
    tunnel = next(one for one in gateway.tunnels if one.name == f"{REGION}-1")
    aws.run("ip", "address", "add", f"{tunnel.far.outside}/24", "dev", "wan0")
    own = replace(gateway, tunnels=(replace(tunnel, name=site.site.name),))
    return AwsStandIn(aws, own, (str(plan.region(REGION).block),), port)
