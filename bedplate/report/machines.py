"""The machines that groups hold now, as a table and as a document for programs."""

from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import Any

from bedplate.account.machines import Machine
from bedplate.report.columns import aligned, counted


def machine_lines(machines: Iterable[Machine]) -> Iterator[str]:
    """Yield a row a machine, group by group; then how many there are."""
    every = sorted(machines, key=lambda each: (each.group, each.region, each.name or "", each.instance))
    heading = ("group", "name", "address", "zone", "type", "state", "instance")
    yield from aligned([heading, *(_row(each) for each in every)] if every else [], gap=2)
    yield f"{counted(len(every), 'machine')} in groups"


def machine_document(machines: Iterable[Machine]) -> dict[str, Any]:
    """Return the machines as JSON's own types."""
    return {"machines": [asdict(each) | {"address": str(each.address) if each.address else None} for each in machines]}


def _row(each: Machine) -> tuple[str, ...]:
    return (
        each.group,
        each.name or "-",
        str(each.address or "-"),
        each.zone,
        each.type,
        each.state,
        each.instance,
    )
