"""The effects of edits on a live fleet: `diff`."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from pydantic import BaseModel

from bedplate.plan.fleet import FleetPlan
from bedplate.plan.stacks import Step, stack_name
from bedplate.report.columns import aligned, counted
from bedplate.spec import Fleet
from bedplate.update import Consequence, Edit, Effect, Event

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


def order_lines(steps: Sequence[Step]) -> Iterator[str]:
    """Yield the commands that carry out an edit, numbered; none if the order of the stacks is unknown."""
    if steps:
        yield ""
        yield "next: `bedplate up`; or in this order:"
    for number, step in enumerate(steps, 1):
        yield " ".join((f"  {number}  bedplate {step.action}", *(f"--stack {part}" for part in step.parts)))


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
