"""Plans that several tests share: connected regions, the lab with a record, its machines, and connected sites.

All addresses and keys are fake.
"""

from dataclasses import replace
from functools import cache
from ipaddress import IPv4Address
from itertools import combinations
from pathlib import Path

from bedplate.catalog import load_catalog
from bedplate.load import load_fleet
from bedplate.operate import plan_loaded
from bedplate.plan import FleetPlan, Record
from bedplate.plan.fleet import SitePlan, TunnelPlan
from bedplate.plan.laptops import LaptopGatewayPlan, laptop_gateways
from bedplate.plan.links import connected_regions
from bedplate.plan.nodes import NodePlan, find_node
from tests.testlab.rehearsal.programs import EXAMPLES, plan_of, plan_of_text
from vpn.sites.gateway import (
    AwsEnd,
    AwsEnds,
    Gateway,
    PlaceProofs,
    SharedKey,
    direct_tunnels,
    region_gateway,
    site_gateway,
)

WEST, NORTH, ALONE = "us-west-2", "eu-north-1", "us-east-1"
CONNECTED_REGIONS_TEXT = """
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


def connected_regions_plan(record: Record = RECORD, text: str = CONNECTED_REGIONS_TEXT) -> FleetPlan:
    """Return the plan of the fleet file with connected regions, with a record."""
    return plan_of_text(text, record)


def keys_between(plan: FleetPlan, word: str = "key") -> dict[frozenset[str], SharedKey]:
    """Return a fake key for each pair of connected gateways."""
    pairs = combinations(sorted(connected_regions(plan)), 2)
    return {frozenset(pair): SharedKey(f"{word} of {' and '.join(pair)}".encode()) for pair in pairs}


def shared_keys(plan: FleetPlan, word: str = "key") -> PlaceProofs:
    """Return the pre-shared keys of gateways; another `word` gives other keys."""
    keys = keys_between(plan, word)
    return lambda near, far: keys[frozenset((near, far))]


def gateway_of(region: str, plan: FleetPlan | None = None, word: str = "key") -> Gateway:
    """Return the gateway of a connected region; another `word` gives another key."""
    plan = plan or connected_regions_plan()
    return region_gateway(plan, region, shared_keys(plan, word))


HOME = "us-west-2"
GATEWAY_ADDRESS = IPv4Address("52.1.2.3")
RESOLVERS = (IPv4Address("10.64.32.5"), IPv4Address("10.64.64.7"))
LAPTOP_PLANS_RECORD = Record({}, gateways={HOME: GATEWAY_ADDRESS}, resolvers={HOME: RESOLVERS})


def lab_plan(record: Record = LAPTOP_PLANS_RECORD) -> FleetPlan:
    """Return the plan of the lab with a record."""
    return plan_of(EXAMPLES / "lab.yaml", record)


def lab_gateways(record: Record = LAPTOP_PLANS_RECORD) -> tuple[LaptopGatewayPlan, ...]:
    """Return the lab's laptop gateways: one in the home region, one on the site."""
    return laptop_gateways(lab_plan(record))


def connected_laptop_gateways() -> tuple[LaptopGatewayPlan, ...]:
    """Return the lab's laptop gateways with connections between laptops enabled."""
    plan = lab_plan()
    return laptop_gateways(replace(plan, laptops=tuple(replace(pool, between=True) for pool in plan.laptops)))


def unrecorded() -> Record:
    """Return a record without gateways and resolvers, as before the first deployment."""
    return replace(LAPTOP_PLANS_RECORD, gateways={}, resolvers={})


LAB = Path(__file__).parents[3] / "examples" / "lab.yaml"


@cache
def lab_node(name: str) -> NodePlan:
    """Return a machine of the lab by name, such as `titan-01.cellar`."""
    catalog = load_catalog()
    return find_node(plan_loaded(load_fleet(LAB, catalog)), name, catalog)


LAB_PLAN = plan_of(EXAMPLES / "lab.yaml")
_FIRST = IPv4Address("203.0.113.10")


def ends_of(plan: FleetPlan) -> AwsEnds:
    """Return AWS's end of every tunnel of a plan."""
    ends = {
        (tunnel.site, tunnel.region, tunnel.number): AwsEnd(
            _outside(tunnel), SharedKey(f"key.of.{tunnel.inside}".encode())
        )
        for tunnel in plan.tunnels
    }
    return {(site, region): (ends[site, region, 1], ends[site, region, 2]) for site, region, _ in ends}


def _outside(tunnel: TunnelPlan) -> IPv4Address:
    """Return an address that depends only on the tunnel's inside block."""
    return _FIRST + int(tunnel.inside.network_address) // 4 % 128


def cellar_gateway(plan: FleetPlan = LAB_PLAN) -> Gateway:
    """Return the gateway of the lab's site."""
    return site_gateway(plan, plan.sites[0], ends_of(plan))


ATTIC, CELLAR, REGION = "attic", "cellar", "us-west-2"
CONNECTED_SITES_TEXT = """
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
THIRD_SITE_TEXT = """  loft:
    lan: 192.168.70.0/24
    gateway: {machine: hatch, public: 9.30.40.60, asn: 65012, joins: [attic, cellar]}
    machines: {hatch: {address: 192.168.70.1}}
"""
JOINS = ", joins: [cellar]"


def connected_sites_plan(text: str = CONNECTED_SITES_TEXT, record: Record | None = None) -> FleetPlan:
    """Return the plan of the fleet file with connected sites, with a record."""
    return plan_of_text(text, record or Record({}))


def with_gateways(plan: FleetPlan, **settings: object) -> FleetPlan:
    """Return the plan with changed keys of every site's gateway, such as `asn=65001`."""
    return replace(
        plan,
        sites=tuple(with_settings(site, gateway=site.spec.gateway.model_copy(update=settings)) for site in plan.sites),
    )


def with_settings(site: SitePlan, **settings: object) -> SitePlan:
    """Return the site with changed keys of its entry in the fleet file."""
    return replace(site, spec=site.spec.model_copy(update=settings))


def site_of(plan: FleetPlan, name: str) -> SitePlan:
    """Return a site of a plan."""
    return plan.sites_by_name[name]


def one_secret(near: str, far: str) -> SharedKey:
    """Return a fake key for a pair of sites."""
    return SharedKey(f"key of {' and '.join(sorted((near, far)))}".encode())


def connected_site_gateway(plan: FleetPlan, name: str, proofs: PlaceProofs = one_secret) -> Gateway:
    """Return a site's gateway with all its tunnels; AWS's ends are fake."""
    site = site_of(plan, name)
    return site_gateway(plan, site, ends_of(plan), tuple(direct_tunnels(plan, site, proofs)))
