"""The plan of a fleet, computed from the fleet file and the lock. Pure: no file access, no clock, no AWS calls.

Addresses are `ipaddress` types. Every allocated block is in the supernet, blocks never overlap, and recorded blocks
never move.
"""

from bedplate.plan.allocation import allocate_blocks
from bedplate.plan.cost import Bill, bill
from bedplate.plan.faults import PlanFaults
from bedplate.plan.fleet import FleetPlan
from bedplate.plan.planner import plan_fleet
from bedplate.plan.record import Record
from bedplate.plan.stacks import plan_document

__all__ = [
    "Bill",
    "FleetPlan",
    "PlanFaults",
    "Record",
    "allocate_blocks",
    "bill",
    "plan_document",
    "plan_fleet",
]
