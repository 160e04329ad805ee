"""A fleet file whose regions are joined by gateways of their own, but for one that has none; with made-up addresses."""

from ipaddress import IPv4Address
from itertools import combinations

from bedplate.plan import FleetPlan, Record
from bedplate.plan.joint import joined_regions
from tests.support.declared import plan_of_text
from vpn.sites.gateway import Gateway
from vpn.sites.proof import PlaceProofs, SharedKey
from vpn.sites.regions import region_gateway

WEST, NORTH, ALONE = "us-west-2", "eu-north-1", "us-east-1"
TEXT = """
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


def joined_plan(record: Record = RECORD, text: str = TEXT) -> FleetPlan:
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
