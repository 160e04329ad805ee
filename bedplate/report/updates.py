"""The effects of edits on a live fleet: `diff`, docs/updates.md, and every key in docs/fleet-reference.md."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from pydantic import BaseModel

from bedplate.plan.fleet import FleetPlan
from bedplate.plan.stacks import Action, Step, stack_name
from bedplate.report.columns import aligned, counted
from bedplate.spec import Fleet
from bedplate.spec.base import KEYWORD
from bedplate.spec.fleet import Schema, definition, fleet_schema
from bedplate.update import POLICIES, Consequence, Edit, Effect, Event

_REFERENCE = """\
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
    return "\n".join((_REFERENCE, *tables))


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


_UPDATES_HEAD = ("| key | event | effect | affected resources | instead |", "| --- | --- | --- | --- | --- |")
_INTRODUCTION = """\
# What an edit does to a live fleet

Generated by `make docs` from the policies in the code; a test rehearses an edit of each key. `bedplate diff OLD NEW`
shows the effects of the edits between two files, and the order of the stacks ([teardown.md](teardown.md)). Its exit
status is 2 if `check` would reject the new file, 3 if something is replaced, removed or refused.

| effect | what happens |
| --- | --- |
| free | nothing is replaced or removed; running machines do not change |
| new nodes only | running machines do not change; machines launched later do |
| replaces | the resource is deleted and created again |
| removes | the resource is deleted |
| refused | not possible for a live fleet; the last column names an alternative |
"""


def updates_page() -> str:
    """Return docs/updates.md: a table for each part of the fleet file."""
    lines = [_INTRODUCTION]
    for name, policies in groupby(POLICIES.values(), key=lambda policy: policy.key.partition(".")[0]):
        rows = (f"| `{row.key}` | {row.event.value} | {row.summary} | {row.does} | {row.way} |" for row in policies)
        lines += [f"## {name}", "", *_UPDATES_HEAD, *rows, ""]
    return "\n".join(lines)


_MAX_LENGTH = 32
_MARKS = {Event.ADDED: "+", Event.REMOVED: "-", Event.CHANGED: " "}
_EFFECTS = {
    Effect.FREE: "free: nothing is replaced or removed; running machines do not change",
    Effect.NEW_NODES: "new nodes only: running machines do not change",
    Effect.REPLACES: "replaces: resources are deleted and created again",
    Effect.REMOVES: "removes: resources are deleted",
    Effect.REFUSED: "refused: not possible for a live fleet",
}


def diff_lines(consequences: Iterable[Consequence]) -> Iterator[str]:
    """Yield the edits by effect, the most severe first; then the number of each."""
    edits = tuple(consequences)
    if not edits:
        yield "the two fleet files are equivalent"
        return
    for effect, group in groupby(edits, key=lambda edit: edit.effect):
        same = tuple(group)
        yield from (_EFFECTS[effect], *aligned(_row(edit) for edit in same))
        yield from (f"    instead: {way}" for way in dict.fromkeys(edit.way for edit in same if edit.way))
        yield ""
    counts = Counter(edit.effect for edit in edits)
    yield ", ".join(f"{effect}: {count}" for effect, count in counts.items())


def diff_document(consequences: Iterable[Consequence]) -> dict[str, Any]:
    """Return the document of `diff --json`."""
    return {"edits": [_entry(consequence) for consequence in consequences]}


@dataclass(frozen=True, slots=True)
class RemovedZone:
    """A zone that an edit removes, and the names of the Auto Scaling groups that can have instances in it."""

    region: str
    zone: str
    groups: tuple[str, ...]


def removed_zones(plan: FleetPlan, after: Fleet) -> tuple[RemovedZone, ...]:
    """Return the removed zones whose instances an operator must terminate: the pools there keep their groups.

    A fabric has one group per zone, which is deleted together with its instances.
    """
    zones = (
        (region.name, zone.name) for region in plan.regions for zone in region.zones if region.name in after.regions
    )
    groups = {
        (region, zone): tuple(
            f"{plan.name}-{pool.name}"
            for pool in plan.pools
            if pool.region == region and zone in pool.zones and pool.fabric is None
        )
        for region, zone in zones
        if zone not in after.regions[region].zones
    }
    return tuple(RemovedZone(*place, names) for place, names in groups.items() if names)


def removed_zone_lines(plan: FleetPlan, zones: Iterable[RemovedZone]) -> Iterator[str]:
    """Yield the commands that terminate the instances of removed zones."""
    for zone in zones:
        region = f"--region {zone.region}"
        in_zone = f"Name=availability-zone,Values={zone.zone}"
        in_groups = f"Name=tag:aws:autoscaling:groupName,Values={','.join(zone.groups)}"
        yield ""
        yield f"{zone.zone}: Auto Scaling does not move its instances. Terminate them before `bedplate up`:"
        yield f"  pulumi up -s {plan.name}.{zone.region} --target '**aws:autoscaling/group:Group**'"
        yield f"  aws ec2 describe-instances {region} --filters {in_zone} {in_groups} \\"
        yield "    --query 'Reservations[].Instances[].InstanceId' --output text |"
        yield f"    xargs -r aws ec2 terminate-instances {region} --instance-ids"


def order_lines(plan: FleetPlan, steps: Iterable[Step]) -> Iterator[str]:
    """Yield the commands that carry out an edit, numbered; none if the order of the stacks is unknown."""
    commands = tuple((number, step, part) for number, step in enumerate(steps, 1) for part in step.parts)
    if commands:
        yield ""
        yield "next: `bedplate up`; or in this order, commands with the same number in parallel:"
    for number, step, part in commands:
        keep = " --exclude-protected" if step.action is Action.DESTROY else ""
        yield f"  {number}  pulumi {step.action} -s {stack_name(plan, part)}{keep}"


def order_document(plan: FleetPlan, steps: Iterable[Step]) -> dict[str, Any]:
    """Return the order of the stacks in the document of `diff --json`."""
    return {
        "order": [
            {"action": step.action.value, "stacks": [stack_name(plan, part) for part in step.parts]} for step in steps
        ]
    }


def _row(consequence: Consequence) -> tuple[str, ...]:
    edit = consequence.edit
    return (f"  {_MARKS[edit.event]} {edit.key}", _change(edit), consequence.does)


def _change(edit: Edit) -> str:
    if edit.event is Event.CHANGED:
        return f"{_shown(edit.old)} -> {_shown(edit.new)}"
    return _shown(edit.new if edit.event is Event.ADDED else edit.old)


def _shown(value: object) -> str:
    """Return a value as in the fleet file, or a summary of a long one."""
    if isinstance(value, BaseModel):
        fields = value.model_dump(mode="json", exclude_unset=True)
        return _cut(", ".join(f"{key}: {item}" for key, item in fields.items() if not isinstance(item, dict | list)))
    if isinstance(value, tuple | list):
        return _cut(", ".join(map(_shown, value)))
    if isinstance(value, Mapping):
        return counted(len(value), "entry", "entries")
    return _cut(str(value).lower() if isinstance(value, bool) else str(value))


def _cut(words: str) -> str:
    return words if len(words) <= _MAX_LENGTH else f"{words[: _MAX_LENGTH - 3]}..."


def _entry(consequence: Consequence) -> dict[str, Any]:
    edit = consequence.edit
    return {
        "key": edit.key,
        "event": edit.event.value,
        "old": _plain(edit.old),
        "new": _plain(edit.new),
        "effect": consequence.effect.value,
        "does": consequence.does,
        "instead": consequence.way or None,
    }


def _plain(value: object) -> Any:  # noqa: ANN401  # JSON's own types
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", exclude_unset=True)
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return value if value is None or isinstance(value, bool | int | float) else str(value)
