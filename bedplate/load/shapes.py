"""Writes the correct form of a value: `{machine: NAME, public: IP, asn: N}`, filled from the wrong value."""

import re

from bedplate.load.yaml import Node
from bedplate.spec.base import LONGEST, shown
from bedplate.spec.schema import Schema, definition

_WORDS = {"integer": "N", "number": "N", "boolean": "true"}
# Placeholders of keys whose own name does not say what to write.
_NAMES = {"machine": "NAME", "model": "NAME", "site": "NAME", "email": "ADDRESS", "regions": "REGION"}
_NUMBER = re.compile(r"(?:[A-Z]{0,3}|[$€])([0-9][0-9_,']*)(\.[0-9]+)? *([A-Za-z]*)")


def shape(name: str, schema: Schema, value: object = None) -> str:
    """Return the form of a key's value, with `value` in the first place that accepts it."""
    schema = _resolved(schema)
    if value is not None and accepts(schema, value):
        return str(value)
    if "const" in schema or "enum" in schema:
        return str(schema.get("const", schema.get("enum", [""])[0]))
    if schema.get("type") == "array":
        values = value if isinstance(value, tuple) else (value,)
        return f"[{', '.join(shape(_singular(name), schema['items'], item) for item in values)}]"
    if "properties" in schema:
        return _model_shape(schema, value)
    if isinstance(schema.get("additionalProperties"), dict):
        names = [item for item in value if isinstance(item, str)] if isinstance(value, tuple) else []
        below = shape("", schema["additionalProperties"])
        return f"{{{', '.join(f'{key}: {below}' for key in names or [_NAMES.get(name, 'NAME')])}}}"
    if schema.get("format") == "ipv4":
        return "IP"
    if schema.get("pattern", "").endswith(r"/\d+$"):
        return "IP/N" if "." in schema["pattern"] else "/N"
    return _WORDS.get(schema.get("type", ""), _NAMES.get(name, name.upper() or "VALUE"))


def _model_shape(schema: Schema, value: object) -> str:
    """Return a mapping with the required keys, or with one optional key that accepts the value."""
    properties = schema["properties"]
    fitting = [name for name, part in properties.items() if value is not None and _fits(part, value)]
    names = schema.get("required") or fitting[:1] or list(properties)[:1]
    filled = fitting if isinstance(value, int) else fitting[:1]
    parts = (f"{name}: {shape(name, properties[name], value if name in filled else None)}" for name in names)
    return f"{{{', '.join(parts)}}}"


def _fits(schema: Schema, value: object) -> bool:
    return accepts(_resolved(schema), value)


def accepts(schema: Schema, value: object) -> bool:
    """Return whether a scalar has the type and the form of a key."""
    if isinstance(value, bool) or not isinstance(value, int | str):
        return False
    if isinstance(value, int):
        return schema.get("type") == "integer"
    if schema.get("type") != "string":
        return False
    pattern = r"\d+\.\d+\.\d+\.\d+" if schema.get("format") == "ipv4" else schema.get("pattern", ".*")
    words = schema.get("enum", [schema.get("const", value)])
    return value in words and re.fullmatch(pattern, value) is not None


def _resolved(schema: Schema) -> Schema:
    """Return the model behind a reference, or the first kind of store."""
    if "oneOf" in schema:
        schema = schema["oneOf"][0]
    return definition(schema["$ref"]) if "$ref" in schema else schema


def _singular(name: str) -> str:
    return name.removesuffix("s")


def note(schema: Schema) -> str:
    """Return the first sentence of a key's description, in parentheses."""
    description = schema.get("description", "").partition(". ")[0].rstrip(".")
    return f" ({description})" if description else ""


def default_note(schema: Schema) -> str:
    """Return what happens without an optional key: `, or delete the key (default: 100)`."""
    default = schema.get("default") or schema.get("description", "").partition("Default: ")[2].rstrip(".")
    return f", or delete the key (default: {default})" if default else ", or delete the key"


def number_fix(schema: Schema, node: Node) -> str:
    """Return the number in a value such as 500GiB, AS65010 or $1; else the form of the key."""
    match = _NUMBER.fullmatch(str(node.value))
    description = schema.get("description", "")
    if match is None or (match[3] and not re.search(rf"\b{match[3][0]}", description, re.IGNORECASE)):
        return f"write a number{note(schema)}"
    whole = re.sub(r"[_,']", "", match[1])
    if schema.get("type") == "number":
        return f"write {whole}{match[2] or ''}"
    if match[2] and float(match[2]):
        return f"write {whole} or {int(whole) + 1}{note(schema)}"
    return f"write {whole}{note(schema)}"


def flow(value: object) -> str:
    """Return a value as YAML in one line, cut to the length of a message."""
    if isinstance(value, dict):
        text = f"{{{', '.join(f'{name}: {flow(item)}' for name, item in value.items())}}}"
    elif isinstance(value, tuple):
        text = f"[{', '.join(map(flow, value))}]"
    else:
        return shown(value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."
