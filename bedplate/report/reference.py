"""docs/fleet-reference.md: every key of the fleet file with type, default, description and the effect of an edit."""

from collections.abc import Iterator
from typing import Any

from bedplate.spec.policy import KEYWORD
from bedplate.spec.schema import Schema, definition, fleet_schema

_INTRODUCTION = """\
# Fleet file reference

Generated from the models by `make docs`. `bedplate schema` prints the same as JSON Schema.

In a key, `*` is a name of your choice, or an entry of a list. *Edit* is the effect on a deployed fleet of a changed
value, or of an added or removed entry; [updates.md](updates.md) lists the affected resources.
"""
_HEAD = "| key | type | default | description | edit |\n| --- | --- | --- | --- | --- |"
_TYPES = {"boolean": "true or false", "integer": "integer", "number": "number", "string": "string"}


def reference_page() -> str:
    """Return the page in Markdown: a table for each top-level key with keys below it, the others in the first table."""
    sections: dict[str, list[str]] = {"fleet": []}
    fleet = fleet_schema()
    for name, schema in fleet["properties"].items():
        rows = tuple(_rows(name, schema, is_required=name in fleet["required"]))
        sections.setdefault(name if len(rows) > 1 else "fleet", []).extend(rows)
    tables = ("\n".join((f"## {name}", "", _HEAD, *rows, "")) for name, rows in sections.items())
    return "\n".join((_INTRODUCTION, *tables))


def _rows(key: str, schema: Schema, *, is_required: bool, kind: str = "") -> Iterator[str]:
    """Yield the row of a key and of the keys below it; `kind` is the kind of store that has the key."""
    label = f"`{key}` ({kind})" if kind else f"`{key}`"
    default = "required" if is_required else _default(schema)
    cells = (label, _type(schema), default, _description(schema), _edit(schema.get(KEYWORD, {})))
    yield f"| {' | '.join(cell.replace('|', '&#124;').replace('<', '&lt;') for cell in cells)} |"
    for place, model in _models(key, schema):
        store = model.get("properties", {}).get("kind", {}).get("const", "")
        for name, below in model.get("properties", {}).items():
            yield from _rows(f"{place}.{name}", below, is_required=name in model.get("required", ()), kind=store)


def _models(key: str, schema: Schema) -> Iterator[tuple[str, Schema]]:
    """Yield the models of a value or of its entries, each with its key."""
    if "$ref" in schema:
        yield key, definition(schema["$ref"])
    for alternative in schema.get("oneOf", ()):
        yield from _models(key, alternative)
    for entries in ("additionalProperties", "items"):
        if isinstance(schema.get(entries), dict):
            yield from _models(f"{key}.*", schema[entries])


def _type(schema: Schema) -> str:
    """Return the type in words: `integer, 1 to 7`, `list of string`, `transit, peering or none`."""
    if "$ref" in schema:
        schema = definition(schema["$ref"])
    if "const" in schema:
        return str(schema["const"])
    if "enum" in schema:
        return _joined(schema["enum"])
    if "oneOf" in schema or "properties" in schema:
        return "mapping"
    if schema.get("type") == "array":
        return f"list of {_type(schema['items'])}"
    if isinstance(schema.get("additionalProperties"), dict):
        return f"table of {_type(schema['additionalProperties'])}"
    return _TYPES[schema["type"]] + _limits(schema)


def _joined(words: list[Any]) -> str:
    return " or ".join(part for part in (", ".join(map(str, words[:-1])), str(words[-1])) if part)


def _limits(schema: Schema) -> str:
    if "minimum" in schema:
        return f", {schema['minimum']} to {schema['maximum']}"
    return f", such as `{schema['examples'][0]}`" if "examples" in schema else ""


def _default(schema: Schema) -> str:
    if "default" not in schema:
        return ""
    default = schema["default"]
    if isinstance(default, bool):
        return str(default).lower()
    return "" if default in ([], {}) else str(default)


def _description(schema: Schema) -> str:
    named = definition(schema["$ref"]) if "$ref" in schema else {}
    return str(schema.get("description", named.get("description", "")))


def _edit(effects: dict[str, str]) -> str:
    """Return the effect, or the effect of each event where they differ."""
    short = {event: text.partition(":")[0] for event, text in effects.items()}
    if len(set(short.values())) == 1:
        return next(iter(short.values()))
    return "; ".join(f"{event}: {effect}" for event, effect in short.items())
