"""The plan: what a fleet file and its lock come to, as values. Pure: no file, no clock, no AWS.

Addresses are `ipaddress` types throughout; every block that is allotted lies in the supernet, none overlaps
another, and none that the lock knows has moved.
"""

from bedplate.plan.allocation import allot
from bedplate.plan.cost import Bill, bill
from bedplate.plan.document import plan_document
from bedplate.plan.fleet import FleetPlan
from bedplate.plan.planner import plan_fleet
from bedplate.plan.record import PlanFault, PlanFaults, Record

__all__ = [
    "Bill",
    "FleetPlan",
    "PlanFault",
    "PlanFaults",
    "Record",
    "allot",
    "bill",
    "plan_document",
    "plan_fleet",
]
