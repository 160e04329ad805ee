"""`bedplate reach`: the path that a packet takes between two places of the fleet."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bedplate.cli.options import DEFAULT_FLEET, FleetFile, Json
from bedplate.cli.output import show, show_document, tell
from bedplate.errors import InputError, ViolationError

if TYPE_CHECKING:
    from bedplate.plan import FleetPlan
    from bedplate.plan.intent import Flow, Spot
    from bedplate.reach import Fabric, Trip

PLACES = (
    "An address, a machine.site, a zone or zone/edge, a region, a site, laptops.PLACE, a block's path, or internet."
)
From = Annotated[str, typer.Argument(metavar="FROM", help=PLACES, show_default=False)]
To = Annotated[str, typer.Argument(metavar="TO", help="The same.", show_default=False)]
Ends = tuple["Spot", "Spot"]


def reach(  # noqa: PLR0913 - one parameter an option
    source: From,
    target: To,
    fleet: FleetFile = DEFAULT_FLEET,
    *,
    protocol: Annotated[str, typer.Option(metavar="PROTOCOL", help="tcp, udp or icmp.")] = "tcp",
    port: Annotated[int | None, typer.Option(metavar="PORT", help="Of tcp (22 if not said) or udp.")] = None,
    graph: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="What `graph --all` printed (- is stdin), walked without a rehearsal."),
    ] = None,
    json: Json = False,
) -> int:
    """Walk a packet between two places, and back. The exit status is 3 where it or its answer does not arrive."""
    from bedplate.plan.whereabouts import flow_of

    flow = flow_of(protocol, port)
    ends, fabric = _rehearsed(fleet, source, target) if graph is None else _given(graph, fleet, source, target)
    turned = ends[1], ends[0]
    there, back = (_trip(fabric, first, second, flow) for first, second in (ends, turned))
    if json:
        from bedplate.report.reach import reach_document

        show_document(reach_document(ends, flow, there, back))
    else:
        _show(there, ends, flow)
        _show(back, turned, flow)
    return 0 if there.answered else ViolationError.exit_code


def _show(trip: "Trip", ends: "Ends", flow: "Flow") -> None:
    from bedplate.report.reach import reach_lines

    show(reach_lines(ends, flow, trip))


def _trip(fabric: "Fabric", source: "Spot", target: "Spot", flow: "Flow") -> "Trip":
    from bedplate.reach import Packet, trip

    return trip(fabric, Packet(int(source.address), int(target.address), flow.protocol, flow.port))


def _given(graph: str, fleet: Path, source: str, target: str) -> "tuple[Ends, Fabric]":
    """Return two places and the network of a graph; two addresses need no fleet."""
    from bedplate.plan.whereabouts import spot_at

    fabric = _read(graph)
    one, two = spot_at(source), spot_at(target)
    if one is None or two is None:
        plan, (one, two) = _named(fleet, source, target)
        fabric = _with_directs(fabric, plan)
    return (one, two), fabric


def _rehearsed(fleet: Path, source: str, target: str) -> "tuple[Ends, Fabric]":
    """Return two places of a fleet and the network that its stacks make."""
    plan, ends = _named(fleet, source, target)
    return ends, _with_directs(_create(plan), plan)


def _with_directs(fabric: "Fabric", plan: "FleetPlan") -> "Fabric":
    """Return a network with the tunnels between sites that are no resource of AWS's."""
    from dataclasses import replace

    from bedplate.plan.beyond import behind
    from bedplate.reach import Direct, Prefix, prefix

    def end(site: str) -> tuple[Prefix, ...]:
        return tuple(prefix(str(each.block)) for each in behind(plan, site))

    named = ((f"{one} to {other}", (end(one), end(other))) for one, other in (each.sites for each in plan.directs))
    return replace(fabric, directs=tuple(Direct(name, ends) for name, ends in named))


def _named(fleet: Path, source: str, target: str) -> "tuple[FleetPlan, Ends]":
    from bedplate.cli.opening import opened, planned
    from bedplate.plan.whereabouts import spot_of

    plan = planned(opened(fleet))
    return plan, (spot_of(plan, source), spot_of(plan, target))


def _read(graph: str) -> "Fabric":
    """Return the network of a graph in a file; InputError for what no resource of AWS's looks like."""
    from bedplate.audit.document import read_resources
    from bedplate.cli.graph_file import place_of, text_of
    from bedplate.reach import read_fabric

    where = place_of(graph)
    resources = read_resources(text_of(graph), where)
    try:
        return read_fabric(resources)
    except (ValueError, TypeError, AttributeError) as error:
        what = f"a resource has a value of a form that AWS does not know: {error}"
        raise InputError(what, where=where, fix="give what `bedplate graph --all` prints") from None


def _create(plan: "FleetPlan") -> "Fabric":
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
