"""What becomes of one resource in a run: made, left alone, changed in place, replaced or deleted."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from bedplate.rehearsal.difference import Difference, difference
from bedplate.rehearsal.kind import Kind
from bedplate.rehearsal.provider import AwsProvider, Checked, kind_of
from bedplate.rehearsal.providers import Providers
from bedplate.rehearsal.refusal import Refusal
from bedplate.rehearsal.registration import Registration
from bedplate.rehearsal.snapshot import Entry
from bedplate.rehearsal.step import Op, Step
from bedplate.rehearsal.succession import goes_first, must_follow, unignored
from bedplate.rehearsal.wire import Secret, holds_secret

_NOTHING = Difference()


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
    buried: list[Entry] = field(default_factory=list)

    def settle(self, asked: Registration, urn: str, old: Entry | None) -> Entry:
        """Take the steps of one custom resource; return its new entry. Raises Refusal."""
        want = Wanted(asked, urn, kind_of(asked.type), self.providers.of(asked.provider))
        if old is None or old.external:
            return self._make(want, self._checked(want, None), Step(Op.CREATE, urn))
        if urn in self.deleted:
            return self._make_again(want, old, _NOTHING)
        checked = self._checked(want, old)
        found = difference(want.kind, old.inputs, checked.inputs, asked.replace_on_changes)
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
                parent=present(entry.parent),
            )

    def delete(self, entry: Entry, op: Op) -> None:
        """Delete one resource; forget it where it is retained, only read, or no thing in the cloud."""
        if entry.protect:
            raise Refusal("Protected", f"{entry.name} is protected: unprotect it first, in a run of its own")
        acts = entry.is_in_cloud and not entry.retain and not self.preview
        if acts and entry.deleted_with not in self.deleted:
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
        if old.protect:
            keys = ", ".join(found.replace_keys)
            raise Refusal("Protected", f"{old.name} is protected and cannot be replaced ({keys})")
        if goes_first(want.asked, old, want.kind, found):
            for entry in reversed((old, *must_follow(old, self.old, self.deleted))):
                self.delete(entry, Op.DELETE_REPLACED)
            return self._make_again(want, old, found)
        create, switch = (_detailed(op, want.urn, found) for op in (Op.CREATE_REPLACEMENT, Op.REPLACE))
        made = self._make(want, self._renamed(want, old), create, switch)
        self.replaced.append(old)
        return made

    def _make_again(self, want: Wanted, old: Entry, found: Difference) -> Entry:
        """Make what was deleted first."""
        checked = self._renamed(want, old)
        self.note(_detailed(Op.REPLACE, want.urn, found))
        return self._make(want, checked, _detailed(Op.CREATE_REPLACEMENT, want.urn, found))

    def _renamed(self, want: Wanted, old: Entry) -> Checked:
        """Return inputs with automatic names other than the old resource's, which may still be there."""
        return want.provider.check(want.kind, want.urn, unignored(want.asked, old), None, salt=old.ident)


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
