"""The JSON Schema of the fleet file: for editors, for the reference page, and to find the schema of a key."""

from functools import cache
from typing import Any

from bedplate.spec.fleet import Fleet

DIALECT = "https://json-schema.org/draft/2020-12/schema"

Schema = dict[str, Any]


@cache
def fleet_schema() -> Schema:
    """Return the schema, with title, description, default, limits and effects of edits of every key."""
    schema = Fleet.model_json_schema()
    return {"$schema": DIALECT} | {name: _simplified(part) for name, part in schema.items()}


def schema_at(path: tuple[str | int, ...], kind: object = None) -> Schema:
    """Return the schema of the value at `path`, empty if there is none; `kind` selects the kind of store."""
    schema = fleet_schema()
    for part in path:
        schema = _child(_resolved(schema, kind), part)
    return schema | _resolved(schema, kind)


def _simplified(part: object) -> object:
    """Return a part without null as a type, with one pattern for the keys of a table, and prefix lengths as text."""
    if isinstance(part, list | tuple):
        return [_simplified(item) for item in part]
    if not isinstance(part, dict):
        return part
    simplified: Schema = {name: _simplified(item) for name, item in part.items() if (name, item) != ("default", None)}
    choices = simplified.pop("anyOf", None)
    if choices is not None:
        simplified = choices[0] | simplified
    if simplified.get("type") == "string" and isinstance(simplified.get("default"), int):
        simplified["default"] = f"/{simplified['default']}"
    for pattern, item in simplified.pop("patternProperties", {}).items():
        simplified["additionalProperties"] = item
        simplified["propertyNames"]["pattern"] = pattern
    return simplified


def _child(schema: Schema, part: str | int) -> Schema:
    """Return the schema of a key or of the items of a list; empty if there is none."""
    if isinstance(part, int):
        child = schema.get("items", {})
    else:
        child = schema.get("properties", {}).get(part, schema.get("additionalProperties"))
    return child if isinstance(child, dict) else {}


def _resolved(schema: Schema, kind: object) -> Schema:
    """Return the schema behind a reference, or the alternative for a kind of store."""
    if "discriminator" in schema:
        kinds = schema["discriminator"]["mapping"]
        schema = {"$ref": kinds[kind]} if kind in kinds else {}
    return definition(schema["$ref"]) if "$ref" in schema else schema


def definition(reference: str) -> Schema:
    """Return the model behind a `$ref` of the schema."""
    model: Schema = fleet_schema()["$defs"][reference.rpartition("/")[2]]
    return model
