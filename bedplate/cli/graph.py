"""`bedplate graph`: the resources of a stack as the rehearsal created them."""

import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bedplate.cli.output import DEFAULT_FLEET, FleetFile, Json, Parts, show, show_document, tell
from bedplate.errors import InputError, ViolationError

if TYPE_CHECKING:
    from bedplate.graph.reach import Fabric, Trip
    from bedplate.plan import FleetPlan
    from bedplate.plan.reachability import Flow, Spot


class Form(StrEnum):
    """What a graph is printed as."""

    GRAPH = "graph"
    TERRAFORM_PLAN = "terraform-plan"


def graph(
    fleet: FleetFile = DEFAULT_FLEET,
    *,
    stack: Parts = None,
    every: Annotated[bool, typer.Option("--all", help="Of all stacks.")] = False,
    form: Annotated[
        Form, typer.Option("--format", help="terraform-plan is for policy tools: checkov, conftest and the like.")
    ] = Form.GRAPH,
) -> int:
    """Print a stack's resources as JSON."""
    from bedplate.cli.fleet import opened, planned

    if bool(stack) is every:
        what = "--all and --stack contradict each other" if every else "which stack is not said"
        raise InputError(what, fix="give --stack PART, or --all")
    return _graph(planned(opened(fleet)), tuple(stack or ()), form)


def _graph(plan: "FleetPlan", asked: tuple[str, ...], form: Form) -> int:
    from bedplate.cli.stacks import waves
    from bedplate.graph.terraform import plan_document
    from bedplate.rehearsal.rehearse import Phase, create
    from bedplate.rehearsal.stack import graph as nodes
    from bedplate.report.rehearsal import failure_lines
    from stacks.options import stack_name

    report = create(plan.account, waves(plan, asked))
    wanted = {stack_name(plan, part) for part in asked}
    shown = [stack for stack in report.stacks if not wanted or stack.name in wanted]
    for stack in report.stacks:
        tell(failure_lines(stack))
    found = [node for stack in shown for node in nodes(stack.runs[Phase.CREATE].snapshot.entries.values())]
    show_document(plan_document(found) if form is Form.TERRAFORM_PLAN else found)
    return InputError.exit_code if any(stack.failures for stack in report.stacks) else 0


STDIN = "-"


def place_of(graph: str) -> str:
    """Return how messages call where the graph stands."""
    return "stdin" if graph == STDIN else graph


def text_of(graph: str) -> str:
    """Return what the file or stdin holds; InputError says why it cannot be read."""
    fix = "give a file with what `bedplate graph` prints"
    try:
        data = sys.stdin.buffer.read() if graph == STDIN else Path(graph).read_bytes()
        return data.decode()
    except UnicodeDecodeError as error:
        raise InputError(f"byte {error.start:,} is not UTF-8", where=graph, fix=fix) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "no path is like that"
        raise InputError(f"{graph} cannot be read: {reason}", fix=fix) from None


def audit_graph(
    graph: Annotated[str, typer.Argument(metavar="GRAPH", help="What `graph` printed; - is stdin.")],
    *,
    json: Json = False,
) -> int:
    """Check a graph: reach, encryption, permissions."""
    from bedplate.checks.diagnostics import Level
    from bedplate.graph.audit.document import read_graph
    from bedplate.graph.audit.run import audit
    from bedplate.report.graph import audit_lines, stack_fault_document

    where = place_of(graph)
    found = read_graph(text_of(graph), where)
    faults = audit(found)
    if json:
        show_document({"faults": stack_fault_document(faults)})
    else:
        show(audit_lines(where, faults, len(found.nodes)))
    return ViolationError.exit_code if any(fault.level is Level.ERROR for fault in faults) else 0


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
    from bedplate.plan.reachability import flow_of

    flow = flow_of(protocol, port)
    ends, fabric = _rehearsed(fleet, source, target) if graph is None else _given(graph, fleet, source, target)
    turned = ends[1], ends[0]
    there, back = (_trip(fabric, first, second, flow) for first, second in (ends, turned))
    if json:
        from bedplate.report.graph import reach_document

        show_document(reach_document(ends, flow, there, back))
    else:
        _show(there, ends, flow)
        _show(back, turned, flow)
    return 0 if there.answered else ViolationError.exit_code


def _show(trip: "Trip", ends: "Ends", flow: "Flow") -> None:
    from bedplate.report.graph import reach_lines

    show(reach_lines(ends, flow, trip))


def _trip(fabric: "Fabric", source: "Spot", target: "Spot", flow: "Flow") -> "Trip":
    from bedplate.graph.reach import Packet, trip

    return trip(fabric, Packet(int(source.address), int(target.address), flow.protocol, flow.port))


def _given(graph: str, fleet: Path, source: str, target: str) -> "tuple[Ends, Fabric]":
    """Return two places and the network of a graph; two addresses need no fleet."""
    from bedplate.plan.reachability import spot_at

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

    from bedplate.graph.reach import Direct, Prefix, prefix
    from bedplate.plan.links import behind

    def end(site: str) -> tuple[Prefix, ...]:
        return tuple(prefix(str(each.block)) for each in behind(plan, site))

    named = ((f"{one} to {other}", (end(one), end(other))) for one, other in (each.sites for each in plan.directs))
    return replace(fabric, directs=tuple(Direct(name, ends) for name, ends in named))


def _named(fleet: Path, source: str, target: str) -> "tuple[FleetPlan, Ends]":
    from bedplate.cli.fleet import opened, planned
    from bedplate.plan.reachability import spot_of

    plan = planned(opened(fleet))
    return plan, (spot_of(plan, source), spot_of(plan, target))


def _read(graph: str) -> "Fabric":
    """Return the network of a graph in a file; InputError for what no resource of AWS's looks like."""
    from bedplate.graph.audit.document import read_resources
    from bedplate.graph.reach import read_fabric

    where = place_of(graph)
    resources = read_resources(text_of(graph), where)
    try:
        return read_fabric(resources)
    except (ValueError, TypeError, AttributeError) as error:
        what = f"a resource has a value of a form that AWS does not know: {error}"
        raise InputError(what, where=where, fix="give what `bedplate graph --all` prints") from None


def _create(plan: "FleetPlan") -> "Fabric":
    """Create the fleet's stacks in the simulated AWS and read the network that they make."""
    from bedplate.cli.stacks import waves
    from bedplate.graph.reach import read_fabric
    from bedplate.rehearsal.rehearse import Phase, create
    from bedplate.rehearsal.stack import graph
    from bedplate.report.rehearsal import failure_lines

    report = create(plan.account, waves(plan))
    for stack in report.stacks:
        tell(failure_lines(stack))
    if any(stack.failures for stack in report.stacks):
        raise InputError("the fleet's stacks do not come about", fix="`bedplate rehearse` says why")
    return read_fabric(
        node for stack in report.stacks for node in graph(stack.runs[Phase.CREATE].snapshot.entries.values())
    )
