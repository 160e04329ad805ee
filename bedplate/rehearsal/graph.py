"""The resources of a stack as the rehearsal created them, in the form of `bedplate graph`; secrets are masked."""

from collections.abc import Iterable

from bedplate.rehearsal.snapshot import Entry
from bedplate.rehearsal.wire import masked


def graph(entries: Iterable[Entry]) -> list[dict[str, object]]:
    """Return one object a resource, in the order of their creation; names of properties are camelCase."""
    return [_node(entry) for entry in entries]


def _node(entry: Entry) -> dict[str, object]:
    return {
        "urn": entry.urn,
        "type": entry.type,
        "name": entry.name,
        "parent": entry.parent,
        "custom": entry.custom,
        "inputs": masked(dict(entry.inputs)),
        "id": entry.ident,
        "outputs": masked(dict(entry.outputs)),
        "dependencies": list(entry.dependencies),
        "property_dependencies": {key: list(on) for key, on in entry.property_dependencies.items()},
        "protect": entry.protect,
        "provider": entry.provider,
        "external": entry.external,
    }
