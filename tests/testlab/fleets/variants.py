"""A fleet file whose regions are joined by gateways of their own, but for one that has none; with made-up addresses."""

from dataclasses import replace
from functools import cache
from ipaddress import IPv4Address
from itertools import combinations
from pathlib import Path

from bedplate.catalog import load_catalog
from bedplate.cli.fleet import planned
from bedplate.load import load_fleet
from bedplate.plan import FleetPlan, Record
from bedplate.plan.fleet import SitePlan, TunnelPlan
from bedplate.plan.laptops import LaptopGateway, laptop_gateways
from bedplate.plan.links import joined_regions
from bedplate.plan.nodes import NodePlan, node_of
from tests.testlab.rehearsal.programs import EXAMPLES, plan_of, plan_of_text
from vpn.sites.aws import AwsEnd, AwsEnds, direct_tunnels, region_gateway, site_gateway
from vpn.sites.gateway import Gateway, PlaceProofs, SharedKey

WEST, NORTH, ALONE = "us-west-2", "eu-north-1", "us-east-1"
JOINED_FLEET_TEXT = """
version: 1
name: pair
account: "111122223333"
owner: ada@lab.example
domain: pair.internal
network: {supernet: 10.64.0.0/10, interconnect: none}
regions:
  us-west-2: {home: true, zones: [us-west-2a]}
  eu-north-1: {zones: [eu-north-1a]}
  us-east-1: {zones: [us-east-1a]}
vpn:
  laptops: {gateways: [{region: us-west-2}, {region: eu-north-1}], pool: /22}
groups:
  box:
    use: ssh
    types: [m7i.xlarge]
    nodes: {min: 0, max: 4}
    ladder: [{region: us-west-2}, {region: eu-north-1}]
"""
PUBLIC = {WEST: IPv4Address("198.51.100.2"), NORTH: IPv4Address("203.0.113.2")}
RECORD = Record({}, gateways=PUBLIC)


def joined_plan(record: Record = RECORD, text: str = JOINED_FLEET_TEXT) -> FleetPlan:
    """Return the plan of the file beside a record."""
    return plan_of_text(text, record)


def keys_between(plan: FleetPlan, word: str = "key") -> dict[frozenset[str], SharedKey]:
    """Return a key for each two gateways that are joined; no secret of anybody's."""
    pairs = combinations(sorted(joined_regions(plan)), 2)
    return {frozenset(pair): SharedKey(f"{word} of {' and '.join(pair)}".encode()) for pair in pairs}


def shared_keys(plan: FleetPlan, word: str = "key") -> PlaceProofs:
    """Return by what gateways know each other that share keys; another word makes others."""
    keys = keys_between(plan, word)
    return lambda near, far: keys[frozenset((near, far))]


def gateway_of(region: str, plan: FleetPlan | None = None, word: str = "key") -> Gateway:
    """Return the gateway of one of the joined regions; another word makes another key."""
    plan = plan or joined_plan()
    return region_gateway(plan, region, shared_keys(plan, word))


HOME = "us-west-2"
LAPTOP_PLANS_PUBLIC = IPv4Address("52.1.2.3")
RESOLVERS = (IPv4Address("10.64.32.5"), IPv4Address("10.64.64.7"))
LAPTOP_PLANS_RECORD = Record({}, gateways={HOME: LAPTOP_PLANS_PUBLIC}, resolvers={HOME: RESOLVERS})


def lab_plan(record: Record = LAPTOP_PLANS_RECORD) -> FleetPlan:
    """Return the plan of the lab's file beside a record."""
    return plan_of(EXAMPLES / "lab.yaml", record)


def lab_gateways(record: Record = LAPTOP_PLANS_RECORD) -> tuple[LaptopGateway, ...]:
    """Return the lab's gateways: one in the home region, one on the site."""
    return laptop_gateways(lab_plan(record))


def met_gateways() -> tuple[LaptopGateway, ...]:
    """Return the lab's gateways where the file lets laptops reach each other."""
    plan = lab_plan()
    return laptop_gateways(replace(plan, laptops=tuple(replace(pool, between=True) for pool in plan.laptops)))


def unrecorded() -> Record:
    """Return what the lock of a fleet that was never deployed says of gateways: nothing."""
    return replace(LAPTOP_PLANS_RECORD, gateways={}, resolvers={})


LAB = Path(__file__).parents[3] / "examples" / "lab.yaml"


@cache
def lab_node(name: str) -> NodePlan:
    """Return a machine of the lab by its name, as in `titan-01.cellar`."""
    catalog = load_catalog()
    return node_of(planned(load_fleet(LAB, catalog)), name, catalog)


SITE_SIDE_LAB = plan_of(EXAMPLES / "lab.yaml")
_FIRST = IPv4Address("203.0.113.10")


def ends_of(plan: FleetPlan) -> AwsEnds:
    """Return ends for every tunnel of a plan."""
    made = {
        (one.site, one.region, one.number): AwsEnd(_outside(one), SharedKey(f"key.of.{one.inside}".encode()))
        for one in plan.tunnels
    }
    return {(site, region): (made[site, region, 1], made[site, region, 2]) for site, region, _ in made}


def _outside(tunnel: TunnelPlan) -> IPv4Address:
    """Return an address that follows from the tunnel's own block, as nothing of another tunnel may change it."""
    return _FIRST + int(tunnel.inside.network_address) // 4 % 128


def cellar(plan: FleetPlan = SITE_SIDE_LAB) -> Gateway:
    """Return the gateway of the larger example's site."""
    return site_gateway(plan, plan.sites[0], ends_of(plan))


ATTIC, CELLAR, REGION = "attic", "cellar", "us-west-2"
TEXT = """
version: 1
name: rooms
account: "123456789012"
owner: ada@lab.example
domain: rooms.internal
network: {supernet: 10.64.0.0/10, interconnect: none}
regions:
  us-west-2: {home: true, zones: [us-west-2a]}
sites:
  cellar:
    lan: 192.168.40.0/22
    gateway: {machine: gate, public: 8.20.30.40, asn: 65010}
    machines:
      gate: {address: 192.168.40.1}
  attic:
    lan: 192.168.60.0/24
    gateway: {machine: door, public: 9.30.40.50, asn: 65011, joins: [cellar]}
    machines:
      door: {address: 192.168.60.1}
"""
LOFT = """  loft:
    lan: 192.168.70.0/24
    gateway: {machine: hatch, public: 9.30.40.60, asn: 65012, joins: [attic, cellar]}
    machines: {hatch: {address: 192.168.70.1}}
"""
JOINS = ", joins: [cellar]"


def direct_plan(text: str = TEXT, record: Record | None = None) -> FleetPlan:
    """Return the plan of the file beside a record."""
    return plan_of_text(text, record or Record({}))


def with_gateways(plan: FleetPlan, **settings: object) -> FleetPlan:
    """Return the plan with these settings at the gateway of every site, such as `asn=65001`."""
    return replace(
        plan,
        sites=tuple(with_settings(site, gateway=site.spec.gateway.model_copy(update=settings)) for site in plan.sites),
    )


def with_settings(site: SitePlan, **settings: object) -> SitePlan:
    """Return a site with these keys of its entry in the fleet file replaced."""
    return replace(site, spec=site.spec.model_copy(update=settings))


def site_of(plan: FleetPlan, name: str) -> SitePlan:
    """Return a site of a plan."""
    return next(site for site in plan.sites if site.name == name)


def one_secret(near: str, far: str) -> SharedKey:
    """Return what two sites share; no secret of anybody's."""
    return SharedKey(f"key of {' and '.join(sorted((near, far)))}".encode())


def direct_gateway(plan: FleetPlan, name: str, proofs: PlaceProofs = one_secret) -> Gateway:
    """Return a site's gateway with all its tunnels, AWS's ends of which are made up."""
    site = site_of(plan, name)
    return site_gateway(plan, site, ends_of(plan), tuple(direct_tunnels(plan, site, proofs)))
