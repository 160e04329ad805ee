"""The effect of an edit of the fleet file on a deployed fleet: the policy of every key, and the edits of two files.

Pure functions: nothing here plans, reads a file or calls AWS. `tests/labs/test_update_promises.py` rehearses an edit
of every key and compares the result with its policy.
"""

import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from ipaddress import IPv4Network
from types import MappingProxyType

from bedplate.spec import Fleet
from bedplate.spec.base import Effect, Event, OnEdit, Policy, Spec
from bedplate.spec.groups import Rung

__all__ = ["POLICIES", "Effect", "Event", "Policy"]


def _policies(model: type[Spec], prefix: str = "") -> Iterator[Policy]:
    """Yield the policies of a model's fields and of the models in them, each with its key."""
    for name, field in model.model_fields.items():
        # The name of a key that is a word of Python ends in _.
        key = f"{prefix}.{name.rstrip('_')}".lstrip(".")
        types = tuple(_types(field.annotation))
        models = [part for part in types if isinstance(part, type) and issubclass(part, Spec)]
        is_collection = any(typing.get_origin(part) in (Mapping, tuple) for part in types)
        entry = f"{key}.*" if models and is_collection else key
        if isinstance(field.json_schema_extra, OnEdit):
            for policy in field.json_schema_extra.policies:
                yield replace(policy, key=key if policy.event is Event.CHANGED else entry)
        for inner in models:
            yield from _policies(inner, entry)


def _types(annotation: object) -> Iterator[object]:
    """Yield a type and the types of its parameters."""
    yield annotation
    for part in typing.get_args(annotation):
        yield from _types(part)


POLICIES: Mapping[tuple[str, Event], Policy] = MappingProxyType(
    {(policy.key, policy.event): policy for policy in _policies(Fleet)}
)


@dataclass(frozen=True, slots=True)
class Edit:
    """One difference: the key, the event, and the value before and after (None if there was none).

    `pattern` is the key with `*` in place of every name from the file and every list index.
    """

    key: str
    pattern: str
    event: Event
    old: object = None
    new: object = None


@dataclass(frozen=True, slots=True)
class _Location:
    """A position in the file: its key, and the key's pattern."""

    key: str = ""
    pattern: str = ""

    def field(self, name: str) -> "_Location":
        return _Location(f"{self.key}.{name}".lstrip("."), f"{self.pattern}.{name}".lstrip("."))

    def entry(self, name: object) -> "_Location":
        return _Location(f"{self.key}.{name}", f"{self.pattern}.*")

    def edit(self, event: Event, old: object = None, new: object = None) -> Edit:
        return Edit(self.key, self.pattern, event, old, new)


def edits(before: Fleet, after: Fleet) -> tuple[Edit, ...]:
    """Return the edits that turn one fleet into another, in the order of the file."""
    return tuple(_model_edits(_Location(), before, after))


def _model_edits(location: _Location, old: Spec, new: Spec) -> Iterator[Edit]:
    """Yield the edits of the keys that both models have; two kinds of store have different keys."""
    for name in type(new).model_fields:
        if name in type(old).model_fields:
            yield from _value_edits(location.field(name.rstrip("_")), getattr(old, name), getattr(new, name))


def _value_edits(location: _Location, old: object, new: object) -> Iterator[Edit]:
    if old == new:
        return
    if isinstance(old, Spec) and isinstance(new, Spec):
        yield from _model_edits(location, old, new)
    elif isinstance(old, Mapping) and isinstance(new, Mapping) and _has_models(*old.values(), *new.values()):
        yield from _table_edits(location, old, new)
    elif isinstance(old, tuple) and isinstance(new, tuple):
        yield from _list_edits(location, old, new)
    elif old is None or new is None:
        yield location.edit(Event.REMOVED if new is None else Event.ADDED, old, new)
    else:
        yield location.edit(Event.CHANGED, old, new)


def _has_models(*values: object) -> bool:
    return any(isinstance(value, Spec) for value in values)


def _table_edits(location: _Location, old: Mapping[str, object], new: Mapping[str, object]) -> Iterator[Edit]:
    for name in dict.fromkeys((*old, *new)):
        entry = location.entry(name)
        if name in old and name in new:
            yield from _value_edits(entry, old[name], new[name])
        elif name in old:
            yield entry.edit(Event.REMOVED, old=old[name])
        else:
            yield entry.edit(Event.ADDED, new=new[name])


def _list_edits(location: _Location, old: tuple[object, ...], new: tuple[object, ...]) -> Iterator[Edit]:
    """Yield the added and the removed items; a list with the same items in another order has changed."""
    if _has_models(*old, *new):
        yield from _entry_edits(location, old, new)
        return
    removed = tuple(item for item in old if item not in new)
    added = tuple(item for item in new if item not in old)
    if removed:
        yield location.edit(Event.REMOVED, old=removed)
    if added:
        yield location.edit(Event.ADDED, new=added)
    if not removed and not added:
        yield location.edit(Event.CHANGED, old, new)


def _entry_edits(location: _Location, old: tuple[object, ...], new: tuple[object, ...]) -> Iterator[Edit]:
    """Yield the edits of a list of models, whose entries are matched by their identity."""
    before, after = ({_identity(item): (index, item) for index, item in enumerate(items)} for items in (old, new))
    for identity, (index, item) in before.items():
        if identity in after:
            yield from _value_edits(location.entry(after[identity][0]), item, after[identity][1])
        else:
            yield location.entry(index).edit(Event.REMOVED, old=item)
    for identity, (index, item) in after.items():
        if identity not in before:
            yield location.entry(index).edit(Event.ADDED, new=item)
    if before.keys() == after.keys() and list(before) != list(after):
        yield location.edit(Event.CHANGED, old, new)


def _identity(entry: object) -> object:
    """Return the part of a list's entry that makes it the same entry in both files."""
    return entry.source if isinstance(entry, Rung) else entry


@dataclass(frozen=True, slots=True)
class Consequence:
    """An edit with its effect; `does` names the affected resources, `way` says what to do if it is refused."""

    edit: Edit
    effect: Effect
    does: str
    way: str = ""


def consequences(before: Fleet, after: Fleet) -> tuple[Consequence, ...]:
    """Return the effect of every edit, the hardest first."""
    unsorted = (_consequence(edit) for edit in edits(before, after))
    return tuple(sorted(unsorted, key=lambda consequence: -consequence.effect.weight))


def _consequence(edit: Edit) -> Consequence:
    policy = POLICIES[edit.pattern, edit.event]
    effect = Effect.FREE if policy.grows and _grows(edit.old, edit.new) else policy.effect
    does = "larger than before" if policy.grows and effect is Effect.FREE else policy.does
    return Consequence(edit, effect, does, policy.way if effect is Effect.REFUSED else "")


def _grows(old: object, new: object) -> bool:
    """Return whether a number increased, or the new block contains the old one."""
    if isinstance(old, IPv4Network) and isinstance(new, IPv4Network):
        return old.subnet_of(new)
    return isinstance(old, int) and isinstance(new, int) and old < new
