"""The address plan: every path of a fleet file and its block, or every reason why there is none.

What the record holds keeps its block; what is new goes around all that was ever recorded, in the file or not.
"""

from collections.abc import Mapping
from ipaddress import IPv4Network
from types import MappingProxyType

from bedplate.plan.draw import draw
from bedplate.plan.fault import PlanFaults
from bedplate.plan.guard import refusals
from bedplate.plan.record import Record
from bedplate.plan.subnets import subnets
from bedplate.plan.want import wants
from bedplate.spec import Fleet


def allot(fleet: Fleet, record: Record) -> Mapping[str, IPv4Network]:
    """Return the block of every path that the file asks for, in the order of the file.

    Asks nothing of groups, storage or people, so it answers for a file that is still wrong there.
    Raises PlanFaults with all that is wrong; then nothing is allotted.
    """
    asked, supernet = wants(fleet), fleet.network.supernet
    drawn = draw(asked, record, supernet)
    cut = subnets(fleet, record, drawn.blocks)
    faults = (*refusals(asked, record, supernet), *drawn.faults, *cut.faults)
    if faults:
        raise PlanFaults(faults)
    blocks: dict[str, IPv4Network] = {}
    for want in asked:
        blocks[want.path] = drawn.blocks[want.path]
        blocks |= cut.of_region.get(want.path, {})
    return MappingProxyType(blocks)
