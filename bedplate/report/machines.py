"""The machines that groups hold now, as a table and as a document for programs."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from typing import Any

from bedplate.account.machines import Machine
from bedplate.nodes.host_key import fingerprint
from bedplate.report.columns import aligned, counted

HostKeys = Mapping[str, tuple[str, ...]]


def machine_lines(machines: Iterable[Machine], keys: HostKeys) -> Iterator[str]:
    """Yield a row a machine, group by group, `*` where its host key is known; then how many, and what to do next."""
    every = sorted(machines, key=lambda each: (each.group, each.region, each.name or "", each.instance))
    heading = ("  group", "name", "address", "zone", "type", "state", "instance")
    yield from aligned([heading, *(_row(each, keys) for each in every)] if every else [], gap=2)
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


def _row(each: Machine, keys: HostKeys) -> tuple[str, ...]:
    return (
        f"{'*' if is_known(each, keys) else ' '} {each.group}",
        each.name or "-",
        str(each.address or "-"),
        each.zone,
        each.type,
        each.state,
        each.instance,
    )
