"""A fleet file with two sites whose gateways join each other without AWS; with made-up addresses and keys."""

from bedplate.plan import FleetPlan, Record
from bedplate.plan.fleet import SitePlan
from tests.support.declared import plan_of_text
from tests.support.site_side import ends_of
from vpn.sites.aws import site_gateway
from vpn.sites.direct import direct_tunnels
from vpn.sites.gateway import Gateway
from vpn.sites.proof import PlaceProofs, SharedKey

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
