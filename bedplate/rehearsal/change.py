"""What becomes of one resource in a run: made, left alone, changed in place, replaced or deleted."""

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from bedplate.rehearsal import wire
from bedplate.rehearsal.kind import Change, Kind
from bedplate.rehearsal.provider import AwsProvider, Checked, kind_of
from bedplate.rehearsal.registration import Providers, Registration
from bedplate.rehearsal.state import PROTECTED, PROTECTED_IN_PLACE, Entry, Op, Refusal, Step
from bedplate.rehearsal.wire import UNKNOWN, Secret, holds_secret, holds_unknown, masked, reveal

# An input of every regional type, and none of the kinds' tables: a resource never moves.
REGION: Final = "region"
# The provider makes no difference between them.
_EMPTY: Final[tuple[Any, ...]] = (None, "", [], {})


@dataclass(frozen=True, slots=True)
class Difference:
    """Changed values by path, the inputs they belong to, and which of those force a replacement."""

    paths: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    replace_keys: tuple[str, ...] = ()


def difference(
    kind: Kind, old: Mapping[str, Any], new: Mapping[str, Any], also_replace: tuple[str, ...] = ()
) -> Difference:
    """Compare inputs as the provider does; `also_replace` are the program's own replace_on_changes paths."""
    paths = tuple(sorted(_changes(kind, old, new)))
    parsed = {path: wire.parse(path) for path in paths}
    keys = tuple(sorted({str(parts[0]) for parts in parsed.values()}))
    patterns = [wire.parse(pattern) for pattern in also_replace]
    wished = {str(parts[0]) for parts in parsed.values() if any(wire.matches(one, parts) for one in patterns)}
    replacing = {REGION, *wished, *(key for key, change in kind.inputs.items() if change is Change.REPLACES)}
    forced = tuple(key for key in keys if key in replacing)
    return Difference(paths, keys, forced)


def _changes(kind: Kind, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    for key in {*old, *new}:
        before, after = reveal(old.get(key)), reveal(new.get(key))
        if after is None and key in kind.computed:
            continue
        if key in kind.sets:
            before, after = _ordered(before), _ordered(after)
        yield from _paths(key, before, after)


def _paths(path: str, before: Any, after: Any) -> Iterator[str]:  # noqa: ANN401  # any JSON values
    if isinstance(before, dict) and isinstance(after, dict):
        for key in {*before, *after}:
            step = f".{key}" if key.isidentifier() else f'["{key}"]'
            yield from _paths(path + step, before.get(key), after.get(key))
    elif isinstance(before, list) and isinstance(after, list):
        for n in range(max(len(before), len(after))):
            yield from _paths(f"{path}[{n}]", _item(before, n), _item(after, n))
    elif before != after and not (before in _EMPTY and after in _EMPTY):
        yield path


def _item(items: list[Any], n: int) -> Any:  # noqa: ANN401  # any JSON value
    return items[n] if n < len(items) else None


def _ordered(value: Any) -> Any:  # noqa: ANN401  # any JSON value
    if isinstance(value, list) and not holds_unknown(value):
        return sorted(value, key=lambda item: json.dumps(masked(item), sort_keys=True))
    return value


def needs(entry: Entry) -> frozenset[str]:
    """Return the URNs that must outlive an entry: what it depends on, its parent, its provider."""
    provider = entry.provider.rpartition("::")[0]
    return frozenset(filter(None, (*entry.dependencies, entry.parent, provider, entry.deleted_with)))


def deletion_order(entries: Iterable[Entry]) -> tuple[Entry, ...]:
    """Return entries with dependents first, the latest first among equals.

    A replaced entry and its replacement have one URN: what needs one of them goes before both.
    """
    return tuple(_waves(list(entries)))


def _waves(rest: list[Entry]) -> Iterator[Entry]:
    while rest:
        needed = frozenset[str]().union(*map(needs, rest))
        # Resources of different runs may need each other in a circle: they go together.
        wave = [entry for entry in rest if entry.urn not in needed] or rest
        yield from reversed(wave)
        going = set(map(id, wave))
        rest = [entry for entry in rest if id(entry) not in going]


def making_order(entries: Iterable[Entry]) -> tuple[Entry, ...]:
    """Return entries with dependents last."""
    return tuple(reversed(deletion_order(entries)))


def dependents(urn: str, entries: Mapping[str, Entry], without: Collection[str] = frozenset()) -> tuple[Entry, ...]:
    """Return the entries that depend on `urn`, directly or through others, in the order they were made.

    Those `without` are left out, and what depends on `urn` through them alone.
    """
    reached = {urn}
    found = []
    for entry in entries.values():
        if entry.urn not in without and entry.urn != urn and not reached.isdisjoint(entry.dependencies):
            reached.add(entry.urn)
            found.append(entry)
    return tuple(found)


def closure(urns: Iterable[str], entries: Mapping[str, Entry]) -> frozenset[str]:
    """Return `urns` and everything that must live for them to live."""
    reached: set[str] = set()
    waiting = [urn for urn in urns if urn in entries]
    while waiting:
        urn = waiting.pop()
        if urn not in reached:
            reached.add(urn)
            waiting.extend(found for found in needs(entries[urn]) if found in entries)
    return frozenset(reached)


# What the engine gives as the reason when a resource moves to a provider of another region.
PROVIDER = "provider"


@dataclass(frozen=True, slots=True)
class Follower:
    """A resource deleted because one it depends on goes first, and which of its inputs would replace it."""

    entry: Entry
    keys: tuple[str, ...]


def goes_first(asked: Registration, old: Entry, kind: Kind, found: Difference) -> bool:
    """Whether a resource is deleted before its replacement: as the program says, else as the provider does.

    The provider deletes first what AWS allows only once, and what keeps a name that the program chose. It has no say
    when a resource moves to another provider.
    """
    if asked.delete_first is not None:
        return asked.delete_first
    if PROVIDER in found.replace_keys:
        return False
    named = kind.naming is not None and kind.naming.key not in (*old.defaults, *found.keys)
    return kind.delete_first or named


def must_follow(gone: Entry, entries: Mapping[str, Entry], settled: Collection[str]) -> tuple[Follower, ...]:
    """Return the dependents that cannot outlive a resource deleted first, in the order they were made.

    They are those that a new value of what they took from it would replace. What the program has declared already
    is `settled`: it no longer depends on a resource that comes after it.
    """
    doomed = {gone.urn}
    found = []
    for entry in dependents(gone.urn, entries, settled):
        moved = [key for key, on in entry.property_dependencies.items() if not doomed.isdisjoint(on)]
        if entry.is_in_cloud and (keys := _replacing(entry, moved)):
            doomed.add(entry.urn)
            found.append(Follower(entry, keys))
    return tuple(found)


def unignored(asked: Registration, old: Entry | None) -> Mapping[str, Any]:
    """Return the inputs asked for, with what the program ignores as it was."""
    inputs = asked.inputs
    if old is not None:
        for path in asked.ignore_changes:
            inputs = wire.restored(inputs, old.inputs, wire.parse(path))
    return inputs


def _replacing(entry: Entry, moved: list[str]) -> tuple[str, ...]:
    unknown = {**entry.inputs, **dict.fromkeys(moved, UNKNOWN)}
    return difference(kind_of(entry.type), entry.inputs, unknown).replace_keys


@dataclass(frozen=True, slots=True)
class Wanted:
    """One custom resource of the program: what is asked, and who makes it."""

    asked: Registration
    urn: str
    kind: Kind
    provider: AwsProvider


@dataclass(slots=True)
class Changer:
    """Turns what is asked of a custom resource into steps, and in a real run into calls."""

    old: dict[str, Entry]
    providers: Providers
    preview: bool
    note: Callable[[Step], None]
    replaced: list[Entry] = field(default_factory=list)
    """Replaced, and to be deleted when the program has run."""
    deleted: set[str] = field(default_factory=set)
    doomed: set[str] = field(default_factory=set)
    """Deleted, or about to be: what goes with one of them needs no call of its own."""
    buried: list[Entry] = field(default_factory=list)
    _settled: set[str] = field(default_factory=set)
    _followed: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def settle(self, asked: Registration, urn: str, old: Entry | None) -> Entry:
        """Take the steps of one custom resource; return its new entry. Raises Refusal."""
        self._settled.add(urn)
        want = Wanted(asked, urn, kind_of(asked.type), self.providers.of(asked.provider))
        if old is None:
            return self._make(want, self._checked(want, None), Step(Op.CREATE, urn))
        if old.external:
            return self._make(want, self._checked(want, None), Step(Op.CREATE_REPLACEMENT, urn), Step(Op.REPLACE, urn))
        if urn in self.deleted:
            again = Difference(replace_keys=self._followed.get(urn, ()))
            return self._make_again(want, old, Step(Op.REPLACE, urn), _detailed(Op.CREATE_REPLACEMENT, urn, again))
        checked = self._checked(want, old)
        found = self._difference(want, old, checked)
        if found.replace_keys:
            return self._replace(want, old, found)
        if found.keys:
            return self._update(want, old, checked, found)
        self.note(Step(Op.SAME, urn))
        return _entry(want, checked, old.ident, old.outputs)

    def rename(self, former: str, urn: str) -> None:
        """Give an entry of the state its present URN, wherever the state names it."""

        def present(name: str) -> str:
            return urn if name == former else name

        for key, entry in list(self.old.items()):
            del self.old[key]
            self.old[present(key)] = replace(
                entry,
                urn=present(key),
                dependencies=tuple(map(present, entry.dependencies)),
                property_dependencies={key: tuple(map(present, on)) for key, on in entry.property_dependencies.items()},
                parent=present(entry.parent),
                provider=_repointed(entry.provider, present),
                deleted_with=present(entry.deleted_with),
            )

    def delete(self, entry: Entry, op: Op) -> None:
        """Delete one resource; forget it where it is retained, only read, or no thing in the cloud."""
        if entry.protect:
            raise Refusal(PROTECTED, f"{entry.name} is protected: unprotect it first, in a run of its own")
        self.doomed.add(entry.urn)
        acts = entry.is_in_cloud and not entry.retain and not self.preview
        if acts and entry.deleted_with not in self.doomed:
            self.providers.of(entry.provider).delete(kind_of(entry.type), entry.ident, entry.outputs)
        self.note(Step(Op.DISCARD if entry.external else op, entry.urn))
        self.deleted.add(entry.urn)
        self.buried.append(entry)

    def _checked(self, want: Wanted, old: Entry | None) -> Checked:
        before = Checked(old.inputs, old.defaults) if old else None
        return want.provider.check(want.kind, want.urn, unignored(want.asked, old), before)

    def _make(self, want: Wanted, checked: Checked, *steps: Step) -> Entry:
        if self.preview:
            ident, outputs = "", want.provider.expected(want.kind, checked.inputs)
        else:
            ident, outputs = want.provider.create(want.kind, checked)
        for step in steps:
            self.note(step)
        return _entry(want, checked, ident, outputs)

    def _update(self, want: Wanted, old: Entry, checked: Checked, found: Difference) -> Entry:
        if self.preview:
            outputs = want.provider.expected_update(want.kind, old.outputs, checked.inputs)
        else:
            outputs = want.provider.update(want.kind, old.ident, old.inputs, checked)
        self.note(Step(Op.UPDATE, want.urn, found.keys, paths=found.paths))
        return _entry(want, checked, old.ident, outputs)

    def _replace(self, want: Wanted, old: Entry, found: Difference) -> Entry:
        # The engine lets a resource be unprotected and replaced in one run.
        if old.protect and want.asked.protect:
            keys = ", ".join(found.replace_keys)
            raise Refusal(PROTECTED_IN_PLACE, f"{old.name} is protected and cannot be replaced ({keys})")
        create, switch = (_detailed(op, want.urn, found) for op in (Op.CREATE_REPLACEMENT, Op.REPLACE))
        if goes_first(want.asked, old, want.kind, found):
            self._clear(old)
            return self._make_again(want, old, switch, create)
        made = self._make(want, self._renamed(want, old), create, switch)
        self.replaced.append(old)
        return made

    def _clear(self, old: Entry) -> None:
        """Delete what goes first, and before it what cannot outlive it; nothing where one of them is protected."""
        followers = must_follow(old, self.old, self._settled | self.deleted)
        for one in followers:
            if one.entry.protect:
                reason = f"{old.name} cannot be replaced: {one.entry.name}, which needs it, is protected"
                raise Refusal(PROTECTED_IN_PLACE, reason)
        self.doomed.update(one.entry.urn for one in (Follower(old, ()), *followers))
        self._followed.update({one.entry.urn: one.keys for one in followers})
        # What was protected and is no longer may go: the program has said so.
        for entry in (*(one.entry for one in reversed(followers)), replace(old, protect=False)):
            self.delete(entry, Op.DELETE_REPLACED)

    def _make_again(self, want: Wanted, old: Entry, switch: Step, create: Step) -> Entry:
        """Make what was deleted first."""
        checked = self._renamed(want, old)
        self.note(switch)
        return self._make(want, checked, create)

    def _renamed(self, want: Wanted, old: Entry) -> Checked:
        """Return inputs for a replacement: as the program has them, nothing ignored, and under new automatic names.

        The old resource, which may still be there, keeps its own.
        """
        return want.provider.check(want.kind, want.urn, want.asked.inputs, None, salt=old.ident)

    def _difference(self, want: Wanted, old: Entry, checked: Checked) -> Difference:
        """Compare as the engine does: a provider of another region makes the inputs beside the point."""
        if self.providers.of(old.provider).aws.region != want.provider.aws.region:
            return Difference(replace_keys=(PROVIDER,))
        home = {REGION: want.provider.aws.region}
        before, after = {**home, **old.inputs}, {**home, **checked.inputs}
        return difference(want.kind, before, after, want.asked.replace_on_changes)


def _repointed(provider: str, present: Callable[[str], str]) -> str:
    urn, mark, ident = provider.rpartition("::")
    return f"{present(urn)}{mark}{ident}"


def _detailed(op: Op, urn: str, found: Difference) -> Step:
    return Step(op, urn, found.keys, found.replace_keys, found.paths)


def _entry(want: Wanted, checked: Checked, ident: str, outputs: Mapping[str, Any]) -> Entry:
    asked = want.asked
    secret = {key for key, value in checked.inputs.items() if holds_secret(value)} | set(asked.secret_outputs)
    hidden = {key: Secret(outputs[key]) for key in secret & outputs.keys() if not holds_secret(outputs[key])}
    return replace(
        from_registration(asked, want.urn),
        ident=ident,
        inputs=checked.inputs,
        defaults=checked.defaults,
        outputs={**outputs, **hidden},
    )


def from_registration(asked: Registration, urn: str) -> Entry:
    """Return the entry of a resource as the program declared it, before anything is made."""
    return Entry(
        urn=urn,
        custom=asked.custom,
        inputs=asked.inputs,
        outputs={},
        parent=asked.parent,
        dependencies=asked.dependencies,
        property_dependencies=asked.property_dependencies,
        provider=asked.provider,
        protect=asked.protect,
        retain=asked.retain,
        delete_first=asked.delete_first,
        deleted_with=asked.deleted_with,
    )
