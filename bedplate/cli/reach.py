"""`bedplate reach`: the path that a packet takes between two places of the fleet."""

from typing import TYPE_CHECKING, Annotated

import typer

from bedplate.cli.options import DEFAULT_FLEET, FleetFile, Json
from bedplate.cli.output import show, show_document, tell
from bedplate.errors import InputError, ViolationError

if TYPE_CHECKING:
    from bedplate.plan import FleetPlan
    from bedplate.plan.intent import Flow, Spot
    from bedplate.reach import Fabric, Trip

PLACES = "An address, a machine.site, a zone or zone/edge, a region, a site, laptops.PLACE, or internet."
From = Annotated[str, typer.Argument(metavar="FROM", help=PLACES, show_default=False)]
To = Annotated[str, typer.Argument(metavar="TO", help="The same.", show_default=False)]


def reach(
    source: From,
    target: To,
    fleet: FleetFile = DEFAULT_FLEET,
    *,
    flow: Annotated[str, typer.Option("--flow", metavar="FLOW", help="tcp/PORT, udp/PORT or icmp.")] = "tcp/22",
    as_json: Json = False,
) -> int:
    """Walk a packet between two places, and back."""
    from bedplate.cli.opening import opened, planned
    from bedplate.plan.whereabouts import flow_of, spot_of

    plan = planned(opened(fleet))
    asked = flow_of(flow)
    spots = spot_of(plan, source), spot_of(plan, target)
    fabric = _fabric(plan)
    there, back = (_trip(fabric, first, second, asked) for first, second in (spots, spots[::-1]))
    if as_json:
        from bedplate.report.reach import trip_document

        show_document({"there": trip_document(there), "back": trip_document(back)})
    else:
        _show(there, spots, asked)
        _show(back, spots[::-1], asked)
    return 0 if there.answered else ViolationError.exit_code


def _show(trip: "Trip", spots: "tuple[Spot, ...]", flow: "Flow") -> None:
    from bedplate.report.reach import reach_lines

    source, target = spots
    name = flow.protocol if flow.protocol == "icmp" else f"{flow.protocol}/{flow.port}"
    show(reach_lines(f"{source.name} {source.address} to {target.name} {target.address} {name}", trip))


def _trip(fabric: "Fabric", source: "Spot", target: "Spot", flow: "Flow") -> "Trip":
    from bedplate.reach import Packet, trip

    return trip(fabric, Packet(int(source.address), int(target.address), flow.protocol, flow.port))


def _fabric(plan: "FleetPlan") -> "Fabric":
    """Create the fleet's stacks in the simulated AWS and read the network that they make."""
    from bedplate.cli.waves import waves
    from bedplate.reach import read_fabric
    from bedplate.rehearsal.graph import graph
    from bedplate.rehearsal.rehearse import create
    from bedplate.rehearsal.report import Phase
    from bedplate.report.rehearsal import failure_lines

    report = create(plan.account, waves(plan))
    for stack in report.stacks:
        tell(failure_lines(stack))
    if any(stack.failures for stack in report.stacks):
        raise InputError("the fleet's stacks do not come about", fix="`bedplate rehearse` says why")
    return read_fabric(
        node for stack in report.stacks for node in graph(stack.runs[Phase.CREATE].snapshot.entries.values())
    )
