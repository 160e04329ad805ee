"""The JSON Schema of the fleet file, for editors and for naming the keys that a mapping may have."""

from functools import cache
from typing import Any

from bedplate.spec.fleet import Fleet

DIALECT = "https://json-schema.org/draft/2020-12/schema"

Schema = dict[str, Any]


@cache
def fleet_schema() -> Schema:
    """Return the schema: a title and a description for every key, with defaults, words and limits."""
    schema = Fleet.model_json_schema()
    return {"$schema": DIALECT} | {name: _tidy(part) for name, part in schema.items()}


def keys_at(path: tuple[str | int, ...], kind: object = None) -> tuple[str, ...]:
    """Return the keys that the mapping at `path` may have; `kind` chooses among kinds of storage."""
    schema = fleet_schema()
    for part in path:
        schema = _below(_resolved(schema, kind), part)
    return tuple(_resolved(schema, kind).get("properties", ()))


def _tidy(part: object) -> object:
    """Return the part as an editor should read it: null is no value, and a table's keys are all of one form."""
    if isinstance(part, list | tuple):
        return [_tidy(item) for item in part]
    if not isinstance(part, dict):
        return part
    tidy: Schema = {name: _tidy(item) for name, item in part.items() if (name, item) != ("default", None)}
    choices = tidy.pop("anyOf", None)
    if choices is not None:
        tidy = choices[0] | tidy
    for pattern, item in tidy.pop("patternProperties", {}).items():
        tidy["additionalProperties"] = item
        tidy["propertyNames"]["pattern"] = pattern
    return tidy


def _below(schema: Schema, part: str | int) -> Schema:
    if isinstance(part, int):
        found = schema.get("items", {})
    else:
        found = schema.get("properties", {}).get(part, schema.get("additionalProperties"))
    return found if isinstance(found, dict) else {}


def _resolved(schema: Schema, kind: object) -> Schema:
    """Return the schema that a reference names, and of a choice by kind the chosen one."""
    if "discriminator" in schema:
        kinds = schema["discriminator"]["mapping"]
        schema = {"$ref": kinds[kind]} if kind in kinds else {}
    if "$ref" in schema:
        found: Schema = fleet_schema()["$defs"][schema["$ref"].rpartition("/")[2]]
        return found
    return schema
