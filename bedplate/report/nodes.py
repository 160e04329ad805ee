"""Reports of `node list` and `node apply`."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from itertools import groupby
from textwrap import shorten, wrap
from typing import TYPE_CHECKING, Any

from bedplate.catalog import Catalog
from bedplate.nodes.apply import Event, NodeResult, Step
from bedplate.nodes.host_keys import fingerprint
from bedplate.plan.nodes import NodePlan
from bedplate.plan.pools import PoolPlan
from bedplate.report.columns import WIDTH, age_since, aligned, counted, wrapped

if TYPE_CHECKING:
    from bedplate.account.machines import LiveMachine  # it imports boto3, which most commands do not need
    from bedplate.bundle import NodeStatus


def node_lines(permanent: Iterable[NodePlan], pooled: Iterable[NodePlan], trusted: Iterable[str]) -> Iterator[str]:
    """Yield a row for each permanent machine and for each pool; `*` marks a recorded host key."""
    nodes, keys = tuple(permanent), frozenset(trusted)
    pools = groupby(pooled, key=lambda node: (node.host.rpartition("-")[0], node.place))
    rows = [("  node", "address", "roles", "expires"), *(_row(node, keys) for node in nodes)]
    rows += [_pool(tuple(members)) for _, members in pools]
    yield from aligned(rows)
    trusted_count = sum(node.name in keys for node in nodes)
    machines = counted(len(nodes), "permanent machine")
    yield f"{machines}, {trusted_count} with a recorded host key (*): `bedplate node trust`"


def node_document(nodes: Iterable[tuple[NodePlan, bool]], trusted: Iterable[str]) -> dict[str, Any]:
    """Return the document of `node list --json`: each machine with whether it is permanent."""
    keys = frozenset(trusted)
    return {
        "nodes": [
            {**_entry(node), "standing": is_permanent, "trusted": node.name in keys} for node, is_permanent in nodes
        ]
    }


def _row(node: NodePlan, keys: frozenset[str]) -> tuple[str, ...]:
    mark = "*" if node.name in keys else " "
    return (f"{mark} {node.name}", str(node.address or "by name"), _duties(node))


def _pool(nodes: tuple[NodePlan, ...]) -> tuple[str, ...]:
    first, last = nodes[0], nodes[-1]
    names = first.name if first == last else f"{first.name} to -{last.host.rpartition('-')[2]}"
    return (f"  {names}", "by name", _duties(first), first.expires or "")


def _duties(node: NodePlan) -> str:
    gpus = f" ({node.gpus.count} x {node.gpus.model})" if node.gpus else ""
    return (", ".join(sorted(node.roles)) or "-") + gpus


def _entry(node: NodePlan) -> dict[str, Any]:
    return {
        "name": node.name,
        "full_name": node.full_name,
        "place": node.place,
        "ground": str(node.platform),
        "duties": sorted(node.roles),
        "address": str(node.address) if node.address else None,
        "owner": node.owner,
        "expires": node.expires,
    }


HostKeys = Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class LiveFacts:
    """The values that the report of running machines needs in addition to the machines.

    The time, the pools by name, the prices, and the status by instance. `images` are the baked images by pool.
    """

    now: datetime
    pools: Mapping[str, PoolPlan]
    catalog: Catalog
    status: "Mapping[str, NodeStatus]"
    images: Mapping[str, str] = field(default_factory=dict)

    def is_outdated(self, machine: "LiveMachine") -> bool:
        """Return whether a machine started from another image than new machines of its pool."""
        image = self.images.get(machine.pool)
        return bool(image and machine.image and machine.image != image)


def machine_lines(machines: "Iterable[LiveMachine]", keys: HostKeys, facts: LiveFacts) -> Iterator[str]:
    """Yield a row for each running machine, `*` if its host key is recorded; then the next command."""
    running = sorted(
        machines, key=lambda machine: (machine.group, machine.region, machine.name or "", machine.instance)
    )
    heading = (
        "  group",
        "machine",
        "zone",
        "type",
        "state",
        "rung",
        "age",
        "USD",
        "started by",
        "until (UTC)",
        "status",
    )
    rows = [heading, *(_machine_row(machine, keys, facts) for machine in running)]
    yield from aligned(rows if running else [], right=_AMOUNTS, gap=2)
    trusted = sum(is_known(machine, keys) for machine in running)
    yield f"{counted(len(running), 'running machine')}, {trusted} with a recorded host key (*)"
    if running:
        yield f"USD: on-demand list price since the launch, of {facts.catalog.price_region}, {facts.catalog.price_date}"
    unknown = (machine.group for machine in running if machine.fingerprints and not is_known(machine, keys))
    for group in dict.fromkeys(unknown):
        yield f"next: `bedplate node trust --group {group}` records their host keys"


def is_known(machine: "LiveMachine", keys: HostKeys) -> bool:
    """Return whether the host key recorded for a name is this machine's. An earlier machine may have had the name."""
    recorded = {fingerprint(key) for key in keys.get(machine.name or "", ())}
    return bool(recorded & set(machine.fingerprints) if machine.fingerprints else recorded)


def machine_document(machines: "Iterable[LiveMachine]", keys: HostKeys, facts: LiveFacts) -> dict[str, Any]:
    """Return the document of `node list --live --json`."""
    return {"machines": [asdict(machine) | _json_fields(machine, keys, facts) for machine in machines]}


def _json_fields(machine: "LiveMachine", keys: HostKeys, facts: LiveFacts) -> dict[str, Any]:
    pool, status = facts.pools[machine.pool], facts.status.get(machine.instance)
    return {
        "status": asdict(status) if status else None,
        "address": str(machine.address) if machine.address else None,
        "fingerprints": list(machine.fingerprints),
        "trusted": is_known(machine, keys),
        "launched": machine.launched.isoformat() if machine.launched else None,
        "until": machine.until.isoformat() if machine.until else None,
        "rung": pool.rung + 1,
        "market": pool.market.value,
        "list_price": _spent(machine, facts),
        "outdated_image": facts.is_outdated(machine),
    }


_AMOUNTS = (5, 6, 7)


def _machine_row(machine: "LiveMachine", keys: HostKeys, facts: LiveFacts) -> tuple[str, ...]:
    spent = _spent(machine, facts)
    ends = machine.until is not None and machine.until > facts.now
    return (
        f"{'*' if is_known(machine, keys) else ' '} {machine.group}",
        machine.label,
        machine.zone,
        machine.type,
        machine.state,
        str(facts.pools[machine.pool].rung + 1),
        age_of(machine, facts.now),
        "-" if spent is None else f"{spent:.2f}",
        machine.requested_by or "-",
        f"{machine.until:%m-%d %H:%M}" if machine.until and ends else "-",
        _status(machine, facts),
    )


def _status(machine: "LiveMachine", facts: LiveFacts) -> str:
    """Return the sentence of the last configuration run, an old one with its age; and whether the image is older."""
    status = facts.status.get(machine.instance)
    image = "; older image: replace it" if facts.is_outdated(machine) else ""
    if status is None:
        return f"no status yet{image}"
    hours = int((facts.now.timestamp() - status.time) / 3600)
    age = f" ({hours} h ago)" if hours >= _STATUS_HOURS and status.time else ""
    return shorten(status.sentence, _STATUS_WIDTH, placeholder=" ...") + age + image


# The configuration run is repeated within an hour.
_STATUS_HOURS, _STATUS_WIDTH = 2, 80


def age_of(machine: "LiveMachine", now: datetime) -> str:
    """Return the age of a machine: `5m`, `3h`, `12d`; `-` if EC2 does not know it yet."""
    return age_since(machine.launched, now) if machine.launched else "-"


def _spent(machine: "LiveMachine", facts: LiveFacts) -> float | None:
    """Return the list price of a machine since its launch; None if its price or age is unknown."""
    price = facts.catalog.price(machine.type)
    if price is None or machine.launched is None:
        return None
    hours = max(0.0, (facts.now - machine.launched).total_seconds() / 3600)
    return round(price * hours, 2)


_RIGHT = (1, 2, 3)


def apply_lines(outcomes: Iterable[NodeResult], *, check: bool) -> Iterator[str]:
    """Yield a row for each machine, then its changed operations or its error; then a summary."""
    machines = tuple(outcomes)
    heading = ("node", "would change" if check else "changed", "unchanged", "time")
    rows = aligned((heading, *(_apply_row(machine) for machine in machines)), right=_RIGHT)
    yield rows[0]
    for row, machine in zip(rows[1:], machines, strict=True):
        error = machine.error
        yield from wrapped(f"{error.kind}: {error.words}", f"{row}   ") if error else (row,)
        for name in machine.changed:
            yield from wrapped(name, "  ~ " if check else "  + ")
        if error and error.fix:
            yield from wrapped(error.fix, "  fix  ")
    yield ""
    yield from wrap(_verdict(machines, check=check), WIDTH, subsequent_indent="  ", break_on_hyphens=False)


def apply_document(outcomes: Iterable[NodeResult]) -> dict[str, Any]:
    """Return the document of `node apply --json`."""
    return {"nodes": {machine.node: _apply_entry(machine) for machine in outcomes}}


def event_line(event: Event) -> str | None:
    """Return the progress line of an event; None for events that only the table shows."""
    texts = {
        Step.OPENED: "reading facts",
        Step.NOTE: event.words,
        Step.OPERATION: event.name,
        Step.ERROR: f"{event.kind}: {event.words}",
        Step.REBOOT: "reboots",
    }
    return f"{event.node}: {texts[event.step]}" if event.step in texts else None


def _apply_row(machine: NodeResult) -> tuple[str, ...]:
    unchanged = "-" if machine.error else str(machine.unchanged)
    took = f"{machine.seconds:.1f} s" if machine.seconds or machine.is_done else "-"
    return (machine.node, str(len(machine.changed)), unchanged, took)


def _verdict(machines: Sequence[NodeResult], *, check: bool) -> str:
    incomplete = [machine.node for machine in machines if not machine.is_done]
    if incomplete:
        done = len(machines) - len(incomplete)
        return f"{done} of {counted(len(machines), 'node')} done; not done: {', '.join(incomplete)}"
    changed = sum(bool(machine.changed) for machine in machines)
    if not check:
        return f"{counted(len(machines), 'node')} done, {changed} changed"
    if changed:
        return f"{changed} of {counted(len(machines), 'node')} would change: run `bedplate node apply`"
    return f"{counted(len(machines), 'node')} up to date"


def _apply_entry(machine: NodeResult) -> dict[str, Any]:
    error = machine.error
    return {
        "status": str(error.kind) if error else "done" if machine.is_done else "stopped",
        "changed": machine.changed,
        "unchanged": machine.unchanged,
        "seconds": round(machine.seconds, 3),
        "what": error.words if error else "",
        "fix": error.fix if error else "",
    }
