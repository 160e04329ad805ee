"""The commands that analyse stack resources: graph prints them, reach traces a packet, audit-graph checks them.

The resources of a fleet take seconds to create in the simulated AWS, so graph and reach keep them in a cache.
"""

import json as json_format
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from enum import StrEnum
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any

import typer

import bedplate
from bedplate.cli.options import DEFAULT_FLEET, FleetFile, Json, Parts, Terminal
from bedplate.cli.output import show, show_document
from bedplate.errors import InputError, MachineError, ViolationError
from bedplate.files import write_whole
from bedplate.graph.audit.document import read_graph, read_resources
from bedplate.graph.audit.run import audit
from bedplate.graph.reach import Direct, Fabric, Packet, Prefix, Trip, prefix, read_fabric, trip
from bedplate.graph.terraform import plan_document
from bedplate.load.source import today
from bedplate.lock import lock_path
from bedplate.operate.fleet import device_counts, plan_of
from bedplate.plan import FleetPlan
from bedplate.plan.links import networks_of_place
from bedplate.plan.reachability import Endpoint, Flow, find_endpoint, internet_endpoint, parse_flow
from bedplate.report.graph import audit_lines, reach_document, reach_lines, stack_fault_document
from bedplate.rules import Level

STDIN = "-"
GraphFile = Annotated[
    str, typer.Argument(metavar="GRAPH", help="File with the output of `graph`; - is stdin.", show_default=False)
]
PLACES = "IP address, machine.site, zone, zone/edge, region, site, laptops.PLACE, path of a block, or internet."
From = Annotated[str, typer.Argument(metavar="FROM", help=PLACES, show_default=False)]
To = Annotated[str, typer.Argument(metavar="TO", help="As FROM.", show_default=False)]
Ends = tuple[Endpoint, Endpoint]


def audit_graph(graph: GraphFile, *, json: Json = False) -> int:
    """Check the resources that `graph` printed.

    The exit status is 3 if a resource violates a rule. `bedplate check --explain all` lists the rules.
    """
    name = _name_of(graph)
    resources = read_graph(_read_text(graph), name)
    faults = audit(resources, device_counts())
    if json:
        show_document({"faults": stack_fault_document(faults)})
    else:
        show(audit_lines(name, faults, len(resources.nodes)))
    return ViolationError.exit_code if any(fault.level is Level.ERROR for fault in faults) else 0


def reach(  # noqa: PLR0913 - one parameter an option
    source: From,
    target: To,
    fleet: FleetFile = DEFAULT_FLEET,
    *,
    protocol: Annotated[str, typer.Option(metavar="PROTOCOL", help="tcp, udp or icmp.")] = "tcp",
    port: Annotated[int | None, typer.Option(metavar="PORT", help="TCP port (default: 22) or UDP port.")] = None,
    graph: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Use the output of `graph --all` (- is stdin) instead of a rehearsal."),
    ] = None,
    json: Json = False,
) -> int:
    """Trace a packet and its reply.

    In both directions. The exit status is 3 if the packet or its reply does not arrive from the first place to the
    second.
    """
    flow = parse_flow(protocol, port)
    if graph is None:
        ends, fabric = _rehearsed(fleet, source, target)
    else:
        ends, fabric = _from_graph(graph, fleet, source, target)
    reverse = ends[1], ends[0]
    there, back = _trip(fabric, ends, flow), _trip(fabric, reverse, flow)
    if json:
        show_document(reach_document(ends, flow, there, back))
    else:
        show(reach_lines(ends, flow, there))
        show(reach_lines(reverse, flow, back))
    return 0 if there.answered else ViolationError.exit_code


class Format(StrEnum):
    """The output format of `graph`."""

    GRAPH = "graph"
    TERRAFORM_PLAN = "terraform-plan"


def graph(
    fleet: FleetFile = DEFAULT_FLEET,
    *,
    stack: Parts = None,
    every: Annotated[bool, typer.Option("--all", help="Print the resources of all stacks.")] = False,
    form: Annotated[
        Format, typer.Option("--format", help="terraform-plan suits policy tools such as checkov and conftest.")
    ] = Format.GRAPH,
) -> int:
    """Print a stack's resources as JSON.

    As the simulated AWS creates them. The exit status is 2 if AWS would reject a resource.
    """
    if bool(stack) is every:
        what = "--all and --stack exclude each other" if every else "no stack selected"
        raise InputError(what, fix="pass --stack PART or --all")
    resources, is_complete = _created(fleet, plan_of(Terminal(fleet)), tuple(stack or ()))
    show_document(plan_document(resources) if form is Format.TERRAFORM_PLAN else resources)
    return 0 if is_complete else InputError.exit_code


_CODE = ("bedplate", "images", "roles", "stacks", "vpn", "requirements.lock")
_MAX_CACHED = 20


def _created(fleet: Path, plan: FleetPlan, parts: Sequence[str] = ()) -> tuple[list[dict[str, Any]], bool]:
    """Return the resources of these parts of the fleet, or of all, and whether AWS would create all of them."""
    cached = _cache_file(fleet, parts)
    with suppress(OSError, ValueError):
        return json_format.loads(cached.read_bytes()), True
    # Slow: it imports Pulumi and moto.
    from bedplate.cli.rehearse import create_stacks

    resources, is_complete = create_stacks(plan, parts)
    if is_complete:
        with suppress(OSError, MachineError):
            cached.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_whole(cached, json_format.dumps(resources).encode(), 0o600)
            for oldest in sorted(cached.parent.glob("*.json"), key=os.path.getmtime)[:-_MAX_CACHED]:
                oldest.unlink(missing_ok=True)
    return resources, is_complete


def _cache_file(fleet: Path, parts: Sequence[str]) -> Path:
    """Return the cache file of the resources. Its name is a hash of the fleet file, the lock, the code and the date."""
    root = Path(bedplate.__file__).parents[1]
    code = (file for name in _CODE for file in (root / name, *(root / name).rglob("*")) if file.suffix != ".pyc")
    digest = sha256(f"{today()} {sorted(parts)}".encode())
    for file in filter(Path.is_file, (fleet, lock_path(fleet), *sorted(code))):
        digest.update(f"{file}\0".encode() + sha256(file.read_bytes()).digest())
    folder = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    return folder / "bedplate" / f"{digest.hexdigest()}.json"


def _trip(fabric: Fabric, ends: Ends, flow: Flow) -> Trip:
    source, target = (int(spot.address) for spot in ends)
    return trip(fabric, Packet(source, target, flow.protocol, flow.port))


def _rehearsed(fleet: Path, source: str, target: str) -> tuple[Ends, Fabric]:
    """Return the two places and the network of the fleet's stacks, created in the simulated AWS."""
    plan = plan_of(Terminal(fleet))
    ends = (find_endpoint(plan, source), find_endpoint(plan, target))
    resources, is_complete = _created(fleet, plan)
    if not is_complete:
        raise InputError("the fleet's stacks cannot be created", fix="run `bedplate rehearse` for details")
    return ends, _with_site_tunnels(read_fabric(resources), plan)


def _from_graph(graph: str, fleet: Path, source: str, target: str) -> tuple[Ends, Fabric]:
    """Return the two places and the network of a graph. Two addresses need no fleet file."""
    fabric = _read_fabric(graph)
    spots = internet_endpoint(source), internet_endpoint(target)
    if spots[0] is not None and spots[1] is not None:
        return (spots[0], spots[1]), fabric
    plan = plan_of(Terminal(fleet))
    return (find_endpoint(plan, source), find_endpoint(plan, target)), _with_site_tunnels(fabric, plan)


def _with_site_tunnels(fabric: Fabric, plan: FleetPlan) -> Fabric:
    """Return the network with the tunnels between sites, which are no AWS resources."""

    def blocks(site: str) -> tuple[Prefix, ...]:
        return tuple(prefix(str(network.block)) for network in networks_of_place(plan, site))

    tunnels = (
        Direct(f"{near} to {far}", (blocks(near), blocks(far))) for near, far in (d.sites for d in plan.site_tunnels)
    )
    return replace(fabric, site_tunnels=tuple(tunnels))


def _read_fabric(graph: str) -> Fabric:
    name = _name_of(graph)
    resources = read_resources(_read_text(graph), name)
    try:
        return read_fabric(resources)
    except (ValueError, TypeError, AttributeError) as error:
        what = f"a resource has a property of an unexpected form: {error}"
        raise InputError(what, where=name, fix="pass the output of `bedplate graph --all`") from None


def _name_of(graph: str) -> str:
    """Return the name of the graph file in messages."""
    return "stdin" if graph == STDIN else graph


def _read_text(graph: str) -> str:
    fix = "pass a file with the output of `bedplate graph`"
    try:
        data = sys.stdin.buffer.read() if graph == STDIN else Path(graph).read_bytes()
        return data.decode()
    except UnicodeDecodeError as error:
        raise InputError(f"not UTF-8: byte {error.start:,} is invalid", where=graph, fix=fix) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "invalid path"
        raise InputError(f"cannot read the graph: {reason}", where=graph, fix=fix) from None
