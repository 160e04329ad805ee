"""Writes the correct form of a value: `{machine: NAME, public: IP, asn: N}`, filled from the wrong value.

It also finds the name of AWS that a misspelt region, zone or instance type stands for.
"""

import re
from collections.abc import Collection

from bedplate.catalog import Catalog
from bedplate.checks.diagnostics import one_of
from bedplate.errors import nearest
from bedplate.load.yaml import Node
from bedplate.spec.base import LONGEST, shown
from bedplate.spec.fleet import Schema, definition

_WORDS = {"integer": "N", "number": "N", "boolean": "true"}
# Placeholders of keys whose own name does not say what to write.
_NAMES = {
    "machine": "NAME",
    "model": "NAME",
    "site": "NAME",
    "email": "ADDRESS",
    "regions": "REGION",
    "scratch": "/dev/disk/by-id/DISK",
    "taint": "'KEY=VALUE:NoSchedule'",
    "start": "'HOUR:MINUTE'",
    "stop": "'HOUR:MINUTE'",
}
_TERABYTES = re.compile(r"([0-9]{1,6}(?:\.[0-9]{1,6})?) *[Tt](i?)[Bb]?")
_NUMBER = re.compile(r"(?:[A-Z]{0,3}|[$€])([0-9][0-9_,']*)(\.[0-9]+)? *([A-Za-z]*)(/[a-z]+)?")
_ADDRESS = re.compile(r"\d+\.\d+\.\d+\.\d+")


def shape(name: str, schema: Schema, value: object = None) -> str:
    """Return the form of a key's value, with `value` in the first place that accepts it."""
    schema = _resolved(schema)
    if isinstance(value, tuple) and len(value) == 1 and schema.get("type") == "string":
        value = value[0]
    if value is not None and accepts(schema, value):
        return f"'{value}'" if str(schema.get("examples", ("",))[0]).startswith("'") else str(value)
    if "const" in schema or "enum" in schema:
        return str(schema.get("const", schema.get("enum", [""])[0]))
    if schema.get("type") == "array":
        values = value if isinstance(value, tuple) else (value,)
        return f"[{', '.join(shape(_singular(name), schema['items'], item) for item in values)}]"
    if "properties" in schema:
        return _model_shape(schema, value)
    if isinstance(schema.get("additionalProperties"), dict):
        items = [item for item in value if isinstance(item, str)] if isinstance(value, tuple) else []
        below = shape("", schema["additionalProperties"])
        pairs = [re.split("[=:] *", item, maxsplit=1) for item in items or [_NAMES.get(name, "NAME")]]
        return f"{{{', '.join(f'{key}: {(*words, below)[0]}' for key, *words in pairs)}}}"
    if schema.get("format") == "ipv4":
        return "IP"
    if schema.get("pattern", "").endswith(r"/\d+$"):
        return "IP/N" if "." in schema["pattern"] else "/N"
    return _WORDS.get(schema.get("type", ""), _NAMES.get(name, name.upper() or "VALUE"))


def _model_shape(schema: Schema, value: object) -> str:
    """Return a mapping with the required keys, or with one optional key that accepts the value."""
    properties = schema["properties"]
    fitting = [name for name, part in properties.items() if value is not None and _fits(part, value)]
    required = schema.get("required", [])
    names = [*required, *(name for name in fitting[:1] if len(fitting) == 1 and name not in required)]
    names = names or fitting[:1] or list(properties)[:1]
    filled = fitting if isinstance(value, int) else fitting[:1]
    parts = (f"{name}: {shape(name, properties[name], value if name in filled else None)}" for name in names)
    return f"{{{', '.join(parts)}}}"


def _fits(schema: Schema, value: object) -> bool:
    schema = _resolved(schema)
    items = schema.get("items", {})
    return accepts(items if items.keys() & {"format", "pattern"} else schema, value)


def accepts(schema: Schema, value: object) -> bool:
    """Return whether a scalar has the type and the form of a key."""
    if isinstance(value, bool) or not isinstance(value, int | str):
        return False
    if isinstance(value, int):
        return schema.get("type") == "integer"
    if schema.get("type") != "string":
        return False
    words = schema.get("enum", [schema.get("const", value)])
    if "pattern" not in schema and _ADDRESS.fullmatch(value):
        return schema.get("format") == "ipv4"
    return (
        value in words
        and schema.get("format") != "ipv4"
        and re.fullmatch(schema.get("pattern", ".*"), value) is not None
    )


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
    terabytes = _TERABYTES.fullmatch(str(node.value))
    if terabytes and "GiB" in description:
        return f"write {round(float(terabytes[1]) * (1024 if terabytes[2] else 1000))}{note(schema)}"
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


_MOST_TYPES = 6


def aws_name_fix(noun: str, word: str, path: tuple[str | int, ...], tree: Node, catalog: Catalog) -> str:
    """Return the fix for a word that is not in AWS's form; empty for other nouns."""
    if noun == "AWS region name":
        return _region_fix(word, path, tree, catalog)
    if noun == "zone name":
        zones = region_zones(path, tree, catalog)
        parts = re.split(r"[;\s]+", word.strip("; "))
        if parts[1:] and set(parts) <= set(zones):
            return f"write [{', '.join(parts)}]"
        letter = [zone for zone in zones if word.lower() == zone[-1] or _letters(word) == _letters(zone)]
        return f"write {letter[0]}" if letter else one_of(zones)
    if path[-1] == "model":
        chip = catalog.chip_in(word)
        return f"write {chip}" if chip else ""
    return _type_fix(word.lower(), catalog) if noun == "instance type" else ""


def _region_fix(word: str, path: tuple[str | int, ...], tree: Node, catalog: Catalog) -> str:
    regions = tree.child("regions")
    declared = regions.names if regions and path[0] != "regions" else ()
    declared_regions = [str(name) for name in declared if name in catalog.regions]
    names = declared_regions or [name for name, facts in catalog.regions.items() if not facts.opt_in]
    near = _nearest_region(word, names, catalog)
    return f"write {near}" if near else one_of(names)


def _nearest_region(word: str, names: Collection[str], catalog: Catalog) -> str | None:
    """Return the one of `names` with which a word begins, or the nearest region of AWS."""
    key = re.sub(r"[ _]", "-", word.lower())
    return next((name for name in names if key.startswith(name)), None) or nearest(key, [*names, *catalog.regions])


def _letters(word: str) -> str:
    """Return a word without hyphens, blanks and underscores, in lower case."""
    return re.sub(r"[-_ ]", "", word.lower())


def region_zones(path: tuple[str | int, ...], tree: Node, catalog: Catalog) -> tuple[str, ...]:
    """Return the zones of the region whose key, or whose rung, contains the path."""
    if path[0] == "regions":
        region: object = path[1]
    else:
        rung = tree
        for part in path[:-1]:
            rung = rung.child(part) or rung
        node = rung.child("region")
        region = node.value if node else ""
    facts = catalog.regions.get(_nearest_region(str(region), (), catalog) or "")
    return tuple(sorted(facts.zones)) if facts else ()


def _type_fix(word: str, catalog: Catalog) -> str:
    """Return the type without a service's prefix, or the types of a family or of a GPU, or the nearest type."""
    name = re.sub(r"^(ml|db|cache)\.", "", word.replace("_", ".").replace(" ", ""))
    types = catalog.types.values()
    if name in catalog.types:
        return f"write {name}"
    family = sorted((facts for facts in types if facts.name.startswith(f"{name}.")), key=lambda facts: facts.vcpus)
    with_gpu = sorted((facts for facts in types if facts.gpu and facts.gpu.name == name), key=lambda facts: facts.name)
    if names := [facts.name for facts in family or with_gpu][:_MOST_TYPES]:
        return f"write {'one of ' if names[1:] else ''}{', '.join(names)}"
    near = nearest(name, [other for other in catalog.types if other[0] == name[:1]])
    return f"write {near}" if near else ""
