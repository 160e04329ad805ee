"""The machines of a fleet: where each is, what it does, and how many more of its kind there may be."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import groupby
from textwrap import wrap
from typing import Any

from bedplate.account.machines import Machine
from bedplate.nodes.apply import Event, Outcome, Step
from bedplate.nodes.host_keys import fingerprint
from bedplate.plan.nodes import NodePlan
from bedplate.report.columns import WIDTH, aligned, counted


def node_lines(standing: Iterable[NodePlan], pooled: Iterable[NodePlan], trusted: Iterable[str]) -> Iterator[str]:
    """Yield a row a machine that always stands, and one for those of a pool; `*` marks a host key that is known."""
    fixed, keys = tuple(standing), frozenset(trusted)
    rows = [("  node", "address", "duties", "until"), *(_row(node, keys) for node in fixed)]
    rows += [_pool(tuple(nodes)) for _, nodes in groupby(pooled, key=lambda node: (_group(node), node.place))]
    yield from aligned(rows)
    known = sum(node.name in keys for node in fixed)
    yield f"{counted(len(fixed), 'machine')} always stand, {known} of a known host key (*): `bedplate node trust`"


def node_document(nodes: Iterable[tuple[NodePlan, bool]], trusted: Iterable[str]) -> dict[str, Any]:
    """Return the machines, each with whether it always stands, as JSON's own types."""
    keys = frozenset(trusted)
    return {"nodes": [{**_entry(node), "standing": stands, "trusted": node.name in keys} for node, stands in nodes]}


def _row(node: NodePlan, keys: frozenset[str]) -> tuple[str, ...]:
    mark = "*" if node.name in keys else " "
    return (f"{mark} {node.name}", str(node.address or "by name"), _duties(node))


def _pool(nodes: tuple[NodePlan, ...]) -> tuple[str, ...]:
    first, last = nodes[0], nodes[-1]
    names = first.name if first == last else f"{first.name} to -{last.host.rpartition('-')[2]}"
    return (f"  {names}", "by name", _duties(first), first.expires or "")


def _group(node: NodePlan) -> str:
    return node.host.rpartition("-")[0]


def _duties(node: NodePlan) -> str:
    gpus = f" ({node.gpus.count} x {node.gpus.model})" if node.gpus else ""
    return (", ".join(sorted(node.duties)) or "-") + gpus


def _entry(node: NodePlan) -> dict[str, Any]:
    return {
        "name": node.name,
        "full_name": node.full_name,
        "place": node.place,
        "ground": str(node.ground),
        "duties": sorted(node.duties),
        "address": str(node.address) if node.address else None,
        "owner": node.owner,
        "expires": node.expires,
    }


HostKeys = Mapping[str, tuple[str, ...]]


def machine_lines(machines: Iterable[Machine], keys: HostKeys) -> Iterator[str]:
    """Yield a row a machine, group by group, `*` where its host key is known; then how many, and what to do next."""
    every = sorted(machines, key=lambda each: (each.group, each.region, each.name or "", each.instance))
    heading = ("  group", "name", "address", "zone", "type", "state", "instance")
    yield from aligned([heading, *(_machines_row(each, keys) for each in every)] if every else [], gap=2)
    known = sum(is_known(each, keys) for each in every)
    yield f"{counted(len(every), 'machine')} in groups, {known} of a known host key (*)"
    strange = dict.fromkeys(each.group for each in every if each.fingerprints and not is_known(each, keys))
    for group in strange:
        yield f"next: `bedplate node trust --group {group}` asks AWS and the machines for their keys"


def is_known(machine: Machine, keys: HostKeys) -> bool:
    """Tell whether a name's recorded host key is this machine's, as far as it has told: another may have had it."""
    recorded = {fingerprint(key) for key in keys.get(machine.name or "", ())}
    return bool(recorded & set(machine.fingerprints) if machine.fingerprints else recorded)


def machine_document(machines: Iterable[Machine], keys: HostKeys) -> dict[str, Any]:
    """Return the machines as JSON's own types, each with whether its host key is known."""
    return {"machines": [asdict(each) | _plain(each, keys) for each in machines]}


def _plain(each: Machine, keys: HostKeys) -> dict[str, Any]:
    return {
        "address": str(each.address) if each.address else None,
        "fingerprints": list(each.fingerprints),
        "trusted": is_known(each, keys),
    }


def _machines_row(each: Machine, keys: HostKeys) -> tuple[str, ...]:
    return (
        f"{'*' if is_known(each, keys) else ' '} {each.group}",
        each.name or "-",
        str(each.address or "-"),
        each.zone,
        each.type,
        each.state,
        each.instance,
    )


_RIGHT = (1, 2, 3)


def apply_lines(outcomes: Iterable[Outcome], *, check: bool) -> Iterator[str]:
    """Yield a row a node, under it what changed or would, or why it ended early; then what to do next."""
    every = tuple(outcomes)
    heading = ("node", "would change" if check else "changed", "unchanged", "time")
    rows = aligned((heading, *(_apply_row(each) for each in every)), right=_RIGHT)
    yield rows[0]
    for row, each in zip(rows[1:], every, strict=True):
        yield from _hung(f"{row}   ", _reason(each)) if each.trouble else (row,)
        for name in each.changed:
            yield from _hung("  ~ " if check else "  + ", name)
        if each.trouble and each.trouble.fix:
            yield from _hung("  fix  ", each.trouble.fix)
    yield ""
    yield from wrap(_verdict(every, check=check), WIDTH, subsequent_indent="  ", break_on_hyphens=False)


def apply_document(outcomes: Iterable[Outcome]) -> dict[str, Any]:
    """Return what became of each node as JSON's own types."""
    return {"nodes": {each.node: _apply_entry(each) for each in outcomes}}


def event_line(event: Event) -> str | None:
    """Return what is worth a line while the work goes on; None for what the table tells at its end."""
    match event.step:
        case Step.OPENED:
            return f"{event.node}: looking"
        case Step.NOTE:
            return f"{event.node}: {event.words}"
        case Step.OPERATION:
            return f"{event.node}: {event.name}"
        case Step.TROUBLE:
            return f"{event.node}: {event.kind}: {event.words}"
        case _:
            return None


def _apply_row(each: Outcome) -> tuple[str, ...]:
    unchanged = "-" if each.trouble else str(each.unchanged)
    took = f"{each.seconds:.1f} s" if each.seconds or each.is_done else "-"
    return (each.node, str(len(each.changed)), unchanged, took)


def _reason(each: Outcome) -> str:
    return f"{each.trouble.kind}: {each.trouble.words}" if each.trouble else ""


def _hung(lead: str, text: str) -> list[str]:
    """Return a text behind its lead, in a column of its own where it takes several lines; no word is broken."""
    below = " " * len(lead)
    return wrap(
        text, WIDTH, initial_indent=lead, subsequent_indent=below, break_long_words=False, break_on_hyphens=False
    )


def _verdict(every: Sequence[Outcome], *, check: bool) -> str:
    early = [each for each in every if not each.is_done]
    if early:
        done = len(every) - len(early)
        return f"{counted(done, 'node')} of {len(every)} done; not done: {', '.join(each.node for each in early)}"
    changed = sum(bool(each.changed) for each in every)
    if check:
        if changed:
            return f"{changed} of {counted(len(every), 'node')} to be changed: `bedplate node apply` does it"
        return f"{counted(len(every), 'node')}: all as the plan has it"
    return f"{counted(len(every), 'node')} done, {changed} changed"


def _apply_entry(each: Outcome) -> dict[str, Any]:
    trouble = each.trouble
    return {
        "status": str(trouble.kind) if trouble else "done" if each.is_done else "stopped",
        "changed": each.changed,
        "unchanged": each.unchanged,
        "seconds": round(each.seconds, 3),
        "what": trouble.words if trouble else "",
        "fix": trouble.fix if trouble else "",
    }
