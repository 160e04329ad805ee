"""A creation with an unknown result, and what the search for its object needs."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bedplate.account.client import AwsClient

DEAD = frozenset({"deleted", "deleting", "delete-complete", "delete in progress", "failed", "rejected", "expired"})


@dataclass(frozen=True, slots=True)
class Creation:
    """A resource whose creation has an unknown result; `tags` identify it among those of its type."""

    type: str
    region: str
    inputs: Mapping[str, Any]
    tags: Mapping[str, str]


Finder = Callable[[AwsClient, Creation], Iterable[str]]
"""Returns the ids of the objects that a creation can have made."""


def has_tags(creation: Creation, tags: Iterable[Mapping[str, str]]) -> bool:
    """Return whether an object has the tags of the resource; one of somebody else may have its name."""
    return creation.tags.items() <= {tag["Key"]: tag["Value"] for tag in tags}.items()


def is_live(description: Mapping[str, Any]) -> bool:
    """Return whether a described object exists; AWS lists deleted ones for a while."""
    state = description.get("State") or description.get("Status") or ""
    return str(state.get("Code", "") if isinstance(state, dict) else state).lower() not in DEAD


def filters(values: Mapping[str, str | Sequence[str]]) -> list[dict[str, Any]]:
    """Return filters of a listing by their names; several values are alternatives."""
    return [
        {"Name": name, "Values": [value] if isinstance(value, str) else list(value)} for name, value in values.items()
    ]
