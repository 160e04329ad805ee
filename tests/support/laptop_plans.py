"""The gateways of laptops of examples/lab.yaml, with the addresses that a deployment would have recorded."""

from dataclasses import replace
from ipaddress import IPv4Address

from bedplate.plan import FleetPlan, Record
from bedplate.plan.laptops import LaptopGateway, laptop_gateways
from tests.support.declared import EXAMPLES, plan_of

HOME = "us-west-2"
PUBLIC = IPv4Address("52.1.2.3")
RESOLVERS = (IPv4Address("10.64.32.5"), IPv4Address("10.64.64.7"))
RECORD = Record({}, gateways={HOME: PUBLIC}, resolvers={HOME: RESOLVERS})


def lab_plan(record: Record = RECORD) -> FleetPlan:
    """Return the plan of the lab's file beside a record."""
    return plan_of(EXAMPLES / "lab.yaml", record)


def lab_gateways(record: Record = RECORD) -> tuple[LaptopGateway, ...]:
    """Return the lab's gateways: one in the home region, one on the site."""
    return laptop_gateways(lab_plan(record))


def met_gateways() -> tuple[LaptopGateway, ...]:
    """Return the lab's gateways where the file lets laptops reach each other."""
    plan = lab_plan()
    return laptop_gateways(replace(plan, laptops=tuple(replace(pool, between=True) for pool in plan.laptops)))


def unrecorded() -> Record:
    """Return what the lock of a fleet that was never deployed says of gateways: nothing."""
    return replace(RECORD, gateways={}, resolvers={})
