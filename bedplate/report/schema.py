"""The fleet file's JSON Schema with what an edit of each key does to a fleet that lives, as the keyword `x-update`."""

from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import Any

from bedplate.report.updates import effect_told
from bedplate.spec.schema import Schema, fleet_schema
from bedplate.update.effect import Event
from bedplate.update.policies import POLICIES

KEYWORD = "x-update"


def schema_document() -> Schema:
    """Return the schema; each key tells by event what is done, an entry of a table or list at the key that holds it."""
    document = deepcopy(fleet_schema())
    for pattern, key in _keys(document, document, ""):
        told = dict(_told(pattern))
        if told:
            key[KEYWORD] = told
    return document


def _keys(document: Schema, part: Schema, pattern: str) -> Iterator[tuple[str, Schema]]:
    """Yield every key below a part of the schema, under the pattern by which the policies have it."""
    for name, key in part.get("properties", {}).items():
        here = f"{pattern}.{name}".lstrip(".")
        yield here, key
        for model, place in _models(document, key, here):
            yield from _keys(document, model, place)


def _models(document: Schema, part: Mapping[str, Any], pattern: str) -> Iterator[tuple[Schema, str]]:
    """Yield the models that a value may be, or that it holds under names or in a list."""
    if "$ref" in part:
        yield document["$defs"][part["$ref"].rpartition("/")[2]], pattern
    for choice in part.get("oneOf", ()):
        yield from _models(document, choice, pattern)
    for held in ("additionalProperties", "items"):
        if isinstance(part.get(held), dict):
            yield from _models(document, part[held], f"{pattern}.*")


def _told(pattern: str) -> Iterator[tuple[str, str]]:
    for event in Event:
        policy = POLICIES.get((pattern, event)) or POLICIES.get((f"{pattern}.*", event))
        if policy:
            yield event.value, f"{effect_told(policy)}: {policy.does}"
