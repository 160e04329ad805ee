"""Analyses of the resources of stacks: the graph of a fleet, traces of packets, and checks by rules.

The resources of a fleet take seconds to create in the simulated AWS, so they are kept in a cache.
"""

import json
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import bedplate
from bedplate.catalog import load_catalog
from bedplate.errors import InputError, MachineError, ViolationError
from bedplate.files import write_whole
from bedplate.graph.audit.document import read_graph, read_resources
from bedplate.graph.audit.run import audit
from bedplate.graph.reach import Direct, Fabric, Packet, Prefix, Trip, prefix, read_fabric, trip
from bedplate.load.source import today
from bedplate.lock import lock_path
from bedplate.operate import Operator, Result, plan_of
from bedplate.plan import FleetPlan
from bedplate.plan.links import networks_of_place
from bedplate.plan.reachability import Endpoint, Flow, find_endpoint, internet_endpoint
from bedplate.plan.registration import device_counts
from bedplate.report.graph import audit_lines, reach_document, reach_lines
from bedplate.rules import Level

STDIN = "-"
Ends = tuple[Endpoint, Endpoint]


def check(graph: str) -> Result:
    """Return the faults of the resources in a file; the exit status is 3 if one is an error."""
    name = _name_of(graph)
    resources = read_graph(_read_text(graph), name)
    faults = audit(resources, device_counts(load_catalog()))
    status = ViolationError.exit_code if any(fault.level is Level.ERROR for fault in faults) else 0
    return Result(
        audit_lines(name, faults, len(resources.nodes)), {"faults": [asdict(fault) for fault in faults]}, status
    )


def trace(operator: Operator, places: tuple[str, str], flow: Flow, graph: str | None) -> Result:
    """Return the way of a packet between two places and of its reply, both there and back.

    The network is that of a graph, or of the fleet. The exit status is 3 if packet or reply does not arrive.
    """
    ends, fabric = _rehearsed(operator, *places) if graph is None else _from_graph(operator, graph, *places)
    reverse = ends[1], ends[0]
    there, back = _trip(fabric, ends, flow), _trip(fabric, reverse, flow)
    lines = (*reach_lines(ends, flow, there), *reach_lines(reverse, flow, back))
    status = 0 if there.answered else ViolationError.exit_code
    return Result(lines, reach_document(ends, flow, there, back), status)


def print_graph(operator: Operator, parts: Sequence[str]) -> Result:
    """Return the resources of these parts, or of all, as JSON; the exit status is 2 if AWS would reject one."""
    resources, is_complete = _created(operator, plan_of(operator), tuple(parts))
    return Result((), resources, 0 if is_complete else InputError.exit_code)


_CODE = ("bedplate", "images", "roles", "stacks", "vpn", "requirements.lock")
_MAX_CACHED = 20


def _created(operator: Operator, plan: FleetPlan, parts: Sequence[str] = ()) -> tuple[list[dict[str, Any]], bool]:
    """Return the resources of these parts of the fleet, or of all, and whether AWS would create all of them."""
    cached = _cache_file(operator.fleet, parts)
    with suppress(OSError, ValueError):
        return json.loads(cached.read_bytes()), True
    # Slow: it imports Pulumi and moto.
    from bedplate.operate.rehearsal import create_stacks

    resources, is_complete = create_stacks(operator, plan, parts)
    if is_complete:
        with suppress(OSError, MachineError):
            cached.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_whole(cached, json.dumps(resources).encode(), 0o600)
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


def _rehearsed(operator: Operator, source: str, target: str) -> tuple[Ends, Fabric]:
    """Return the two places and the network of the fleet's stacks, created in the simulated AWS."""
    plan = plan_of(operator)
    ends = (find_endpoint(plan, source), find_endpoint(plan, target))
    resources, is_complete = _created(operator, plan)
    if not is_complete:
        raise InputError("the fleet's stacks cannot be created", fix="run `bedplate rehearse` for details")
    return ends, _with_site_tunnels(read_fabric(resources), plan)


def _from_graph(operator: Operator, graph: str, source: str, target: str) -> tuple[Ends, Fabric]:
    """Return the two places and the network of a graph. Two addresses need no fleet file."""
    fabric = _read_fabric(graph)
    spots = internet_endpoint(source), internet_endpoint(target)
    if spots[0] is not None and spots[1] is not None:
        return (spots[0], spots[1]), fabric
    plan = plan_of(operator)
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
