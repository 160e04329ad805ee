"""Diff and steps of one resource: create, leave unchanged, update in place, replace or delete.

`difference` compares inputs as the AWS provider does. `deletion_order` and `dependents` order the state by
dependencies. `StepExecutor` decides the steps of each custom resource, as Pulumi's engine does, and executes them.
"""

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import Any, Final

from bedplate.rehearsal import wire
from bedplate.rehearsal.kind import Change, ResourceKind
from bedplate.rehearsal.provider import AwsProvider, Checked, Providers, kind_of
from bedplate.rehearsal.registration import Registration
from bedplate.rehearsal.state import PROTECTED, PROTECTED_IN_PLACE, Entry, Op, ResourceError, Step
from bedplate.rehearsal.wire import UNKNOWN, Secret, holds_secret, holds_unknown, masked, reveal

# An input of every regional type that no kind lists. A change of region always replaces the resource.
REGION: Final = "region"
# The provider treats these values as equal.
_EMPTY: Final[tuple[Any, ...]] = (None, "", [], {})


@dataclass(frozen=True, slots=True)
class Difference:
    """The paths of changed values, the inputs they belong to, and the inputs that force a replacement."""

    paths: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    replace_keys: tuple[str, ...] = ()


def difference(
    kind: ResourceKind, old: Mapping[str, Any], new: Mapping[str, Any], replace_on_changes: tuple[str, ...] = ()
) -> Difference:
    """Return the difference of two sets of inputs as the provider sees it."""
    paths = tuple(sorted(_changed_paths(kind, old, new)))
    parsed = {path: wire.parse_path(path) for path in paths}
    keys = tuple(sorted({str(parts[0]) for parts in parsed.values()}))
    patterns = [wire.parse_path(pattern) for pattern in replace_on_changes]
    by_option = {str(parts[0]) for parts in parsed.values() if any(wire.matches(p, parts) for p in patterns)}
    replacing = {REGION, *by_option, *(key for key, change in kind.inputs.items() if change is Change.REPLACES)}
    return Difference(paths, keys, tuple(key for key in keys if key in replacing))


def _changed_paths(kind: ResourceKind, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    for key in {*old, *new}:
        before, after = reveal(old.get(key)), reveal(new.get(key))
        if after is None and key in kind.computed:
            continue
        if key in kind.sets:
            before, after = _sorted(before), _sorted(after)
        yield from _value_paths(key, before, after)


def _value_paths(path: str, before: Any, after: Any) -> Iterator[str]:  # noqa: ANN401  # any JSON values
    if isinstance(before, dict) and isinstance(after, dict):
        for key in {*before, *after}:
            step = f".{key}" if key.isidentifier() else f'["{key}"]'
            yield from _value_paths(path + step, before.get(key), after.get(key))
    elif isinstance(before, list) and isinstance(after, list):
        for n, (old, new) in enumerate(zip_longest(before, after)):
            yield from _value_paths(f"{path}[{n}]", old, new)
    elif before != after and not (before in _EMPTY and after in _EMPTY):
        yield path


def _sorted(value: Any) -> Any:  # noqa: ANN401  # any JSON value
    if isinstance(value, list) and not holds_unknown(value):
        return sorted(value, key=lambda item: json.dumps(masked(item), sort_keys=True))
    return value


def required_urns(entry: Entry) -> frozenset[str]:
    """Return the URNs that must be deleted after an entry: its dependencies, its parent, its provider."""
    provider = entry.provider.rpartition("::")[0]
    return frozenset(filter(None, (*entry.dependencies, entry.parent, provider, entry.deleted_with)))


def deletion_order(entries: Iterable[Entry]) -> tuple[Entry, ...]:
    """Return entries with dependents first; among equals, the latest first.

    A replaced entry and its replacement have the same URN. Their dependents come before both.
    """
    return tuple(_dependents_first(list(entries)))


def _dependents_first(entries: list[Entry]) -> Iterator[Entry]:
    while entries:
        required = frozenset[str]().union(*map(required_urns, entries))
        # Resources of different runs can depend on each other in a cycle. They are deleted together.
        wave = [entry for entry in entries if entry.urn not in required] or entries
        yield from reversed(wave)
        in_wave = set(map(id, wave))
        entries = [entry for entry in entries if id(entry) not in in_wave]


def creation_order(entries: Iterable[Entry]) -> tuple[Entry, ...]:
    """Return entries with dependents last."""
    return tuple(reversed(deletion_order(entries)))


def dependents(urn: str, entries: Mapping[str, Entry], without: Collection[str] = frozenset()) -> tuple[Entry, ...]:
    """Return the direct and indirect dependents of `urn`, in the order of their creation.

    The result leaves out the URNs `without` and the entries that depend on `urn` only through them.
    """
    reached = {urn}
    dependent = []
    for entry in entries.values():
        if entry.urn not in without and entry.urn != urn and not reached.isdisjoint(entry.dependencies):
            reached.add(entry.urn)
            dependent.append(entry)
    return tuple(dependent)


def with_required(urns: Iterable[str], entries: Mapping[str, Entry]) -> frozenset[str]:
    """Return `urns` and everything that they require, directly or indirectly."""
    reached: set[str] = set()
    waiting = [urn for urn in urns if urn in entries]
    while waiting:
        urn = waiting.pop()
        if urn not in reached:
            reached.add(urn)
            waiting.extend(required for required in required_urns(entries[urn]) if required in entries)
    return frozenset(reached)


# The engine's replace key when a resource moves to a provider of another region.
PROVIDER = "provider"


@dataclass(frozen=True, slots=True)
class DependentReplacement:
    """A resource that is replaced with one it depends on, and the inputs that force this."""

    entry: Entry
    keys: tuple[str, ...]


def is_deleted_first(registration: Registration, old: Entry, kind: ResourceKind, diff: Difference) -> bool:
    """Return whether a resource is deleted before its replacement is created.

    The option delete_before_replace decides if it is set. Otherwise the provider deletes first what AWS allows only
    once, and what keeps a name that the program chose. A move to another provider always creates first.
    """
    if registration.delete_first is not None:
        return registration.delete_first
    if PROVIDER in diff.replace_keys:
        return False
    keeps_name = kind.naming is not None and kind.naming.key not in (*old.defaults, *diff.keys)
    return kind.delete_first or keeps_name


def dependent_replacements(
    deleted: Entry, entries: Mapping[str, Entry], processed: Collection[str]
) -> tuple[DependentReplacement, ...]:
    """Return the dependents that are replaced with a resource that is deleted first, in the order of their creation.

    A dependent is replaced if a new value of the inputs that it took from the resource forces that. Resources
    `processed` in this run no longer depend on a resource that is registered after them.
    """
    replaced = {deleted.urn}
    replacements = []
    for entry in dependents(deleted.urn, entries, processed):
        inputs = [key for key, urns in entry.property_dependencies.items() if not replaced.isdisjoint(urns)]
        if entry.is_in_cloud and (keys := _replacing_keys(entry, inputs)):
            replaced.add(entry.urn)
            replacements.append(DependentReplacement(entry, keys))
    return tuple(replacements)


def _replacing_keys(entry: Entry, changed: list[str]) -> tuple[str, ...]:
    unknown = {**entry.inputs, **dict.fromkeys(changed, UNKNOWN)}
    return difference(kind_of(entry.type), entry.inputs, unknown).replace_keys


def with_ignored(registration: Registration, old: Entry | None) -> Mapping[str, Any]:
    """Return the registered inputs, with the old value of each path in ignore_changes."""
    inputs = registration.inputs
    if old is not None:
        for path in registration.ignore_changes:
            inputs = wire.restored(inputs, old.inputs, wire.parse_path(path))
    return inputs


@dataclass(frozen=True, slots=True)
class Goal:
    """The state that a program wants for one custom resource, and the provider that makes it."""

    registration: Registration
    urn: str
    kind: ResourceKind
    provider: AwsProvider


@dataclass(slots=True)
class StepExecutor:
    """Decides the steps of custom resources; calls the provider for each step unless the run is a preview."""

    old: dict[str, Entry]
    providers: Providers
    preview: bool
    add_step: Callable[[Step], None]
    replaced: list[Entry] = field(default_factory=list)
    """Replaced entries, deleted at the end of the run."""
    deleted: set[str] = field(default_factory=set)
    """URNs of deleted resources."""
    deleting: set[str] = field(default_factory=set)
    """URNs of resources whose deletion is decided. A resource with `deleted_with` one of them needs no call to AWS."""
    deleted_entries: list[Entry] = field(default_factory=list)
    _processed: set[str] = field(default_factory=set)
    _dependent_keys: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def apply(self, registration: Registration, urn: str, old: Entry | None) -> Entry:
        """Execute the steps of one custom resource; return its new entry. Raises ResourceError."""
        self._processed.add(urn)
        goal = Goal(registration, urn, kind_of(registration.type), self.providers.of(registration.provider))
        if old is None:
            return self._create(goal, self._check(goal, None), Step(Op.CREATE, urn))
        if old.external:
            steps = Step(Op.CREATE_REPLACEMENT, urn), Step(Op.REPLACE, urn)
            return self._create(goal, self._check(goal, None), *steps)
        if urn in self.deleted:
            diff = Difference(replace_keys=self._dependent_keys.get(urn, ()))
            return self._recreate(goal, old, Step(Op.REPLACE, urn), _step(Op.CREATE_REPLACEMENT, urn, diff))
        checked = self._check(goal, old)
        diff = self._difference(goal, old, checked)
        if diff.replace_keys:
            return self._replace(goal, old, diff)
        if diff.keys:
            return self._update(goal, old, checked, diff)
        self.add_step(Step(Op.SAME, urn))
        return _entry(goal, checked, old.ident, old.outputs)

    def rename(self, former: str, urn: str) -> None:
        """Replace the former URN of an entry by its present one, everywhere in the old state."""

        def present(name: str) -> str:
            return urn if name == former else name

        for key, entry in list(self.old.items()):
            del self.old[key]
            provider, separator, ident = entry.provider.rpartition("::")
            self.old[present(key)] = replace(
                entry,
                urn=present(key),
                dependencies=tuple(map(present, entry.dependencies)),
                property_dependencies={
                    name: tuple(map(present, urns)) for name, urns in entry.property_dependencies.items()
                },
                parent=present(entry.parent),
                provider=f"{present(provider)}{separator}{ident}",
                deleted_with=present(entry.deleted_with),
            )

    def delete(self, entry: Entry, op: Op) -> None:
        """Delete one resource. A retained or external one, or a component, is only removed from the state."""
        if entry.protect:
            raise ResourceError(PROTECTED, f"{entry.name} is protected; set protect=False in a run before this one")
        self.deleting.add(entry.urn)
        needs_call = entry.is_in_cloud and not entry.retain and not self.preview
        if needs_call and entry.deleted_with not in self.deleting:
            self.providers.of(entry.provider).delete(kind_of(entry.type), entry.ident, entry.outputs)
        self.add_step(Step(Op.DISCARD if entry.external else op, entry.urn))
        self.deleted.add(entry.urn)
        self.deleted_entries.append(entry)

    def _check(self, goal: Goal, old: Entry | None) -> Checked:
        before = Checked(old.inputs, old.defaults) if old else None
        return goal.provider.check(goal.kind, goal.urn, with_ignored(goal.registration, old), before)

    def _create(self, goal: Goal, checked: Checked, *steps: Step) -> Entry:
        if self.preview:
            ident, outputs = "", goal.provider.expected(goal.kind, checked.inputs)
        else:
            ident, outputs = goal.provider.create(goal.kind, checked)
        for step in steps:
            self.add_step(step)
        return _entry(goal, checked, ident, outputs)

    def _update(self, goal: Goal, old: Entry, checked: Checked, diff: Difference) -> Entry:
        if self.preview:
            outputs = goal.provider.expected_update(goal.kind, old.outputs, checked.inputs)
        else:
            outputs = goal.provider.update(goal.kind, old.ident, old.inputs, checked)
        self.add_step(Step(Op.UPDATE, goal.urn, diff.keys, paths=diff.paths))
        return _entry(goal, checked, old.ident, outputs)

    def _replace(self, goal: Goal, old: Entry, diff: Difference) -> Entry:
        # The engine allows to unprotect and replace a resource in the same run.
        if old.protect and goal.registration.protect:
            keys = ", ".join(diff.replace_keys)
            raise ResourceError(PROTECTED_IN_PLACE, f"{old.name} is protected and cannot be replaced ({keys})")
        create_step, replace_step = (_step(op, goal.urn, diff) for op in (Op.CREATE_REPLACEMENT, Op.REPLACE))
        if is_deleted_first(goal.registration, old, goal.kind, diff):
            self._delete_with_dependents(old)
            return self._recreate(goal, old, replace_step, create_step)
        entry = self._create(goal, self._check_renamed(goal, old), create_step, replace_step)
        self.replaced.append(old)
        return entry

    def _delete_with_dependents(self, old: Entry) -> None:
        """Delete a resource and the dependents that are replaced with it.

        Raises ResourceError before the first deletion if a dependent is protected.
        """
        replacements = dependent_replacements(old, self.old, self._processed | self.deleted)
        for replacement in replacements:
            if replacement.entry.protect:
                reason = f"{old.name} cannot be replaced: its dependent {replacement.entry.name} is protected"
                raise ResourceError(PROTECTED_IN_PLACE, reason)
        self.deleting |= {old.urn, *(replacement.entry.urn for replacement in replacements)}
        self._dependent_keys |= {replacement.entry.urn: replacement.keys for replacement in replacements}
        # The old state may still say protect: the program has removed it in this run.
        for entry in (*(replacement.entry for replacement in reversed(replacements)), replace(old, protect=False)):
            self.delete(entry, Op.DELETE_REPLACED)

    def _recreate(self, goal: Goal, old: Entry, switch: Step, create: Step) -> Entry:
        """Create the replacement of a resource that is already deleted."""
        checked = self._check_renamed(goal, old)
        self.add_step(switch)
        return self._create(goal, checked, create)

    def _check_renamed(self, goal: Goal, old: Entry) -> Checked:
        """Return the inputs of a replacement: nothing is ignored, and automatic names are new.

        The old resource may still exist and keeps its names.
        """
        return goal.provider.check(goal.kind, goal.urn, goal.registration.inputs, None, salt=old.ident)

    def _difference(self, goal: Goal, old: Entry, checked: Checked) -> Difference:
        """Compare as the engine does: a provider of another region always replaces the resource."""
        region = goal.provider.aws.region
        if self.providers.of(old.provider).aws.region != region:
            return Difference(replace_keys=(PROVIDER,))
        before, after = {REGION: region, **old.inputs}, {REGION: region, **checked.inputs}
        return difference(goal.kind, before, after, goal.registration.replace_on_changes)


def _step(op: Op, urn: str, diff: Difference) -> Step:
    return Step(op, urn, diff.keys, diff.replace_keys, diff.paths)


def _entry(goal: Goal, checked: Checked, ident: str, outputs: Mapping[str, Any]) -> Entry:
    registration = goal.registration
    secret = {key for key, value in checked.inputs.items() if holds_secret(value)} | set(registration.secret_outputs)
    hidden = {key: Secret(outputs[key]) for key in secret & outputs.keys() if not holds_secret(outputs[key])}
    return replace(
        from_registration(registration, goal.urn),
        ident=ident,
        inputs=checked.inputs,
        defaults=checked.defaults,
        outputs={**outputs, **hidden},
    )


def from_registration(registration: Registration, urn: str) -> Entry:
    """Return the entry of a registered resource, without id and outputs."""
    return Entry(
        urn=urn,
        custom=registration.custom,
        inputs=registration.inputs,
        outputs={},
        parent=registration.parent,
        dependencies=registration.dependencies,
        property_dependencies=registration.property_dependencies,
        provider=registration.provider,
        protect=registration.protect,
        retain=registration.retain,
        delete_first=registration.delete_first,
        deleted_with=registration.deleted_with,
    )
