"""One run of a program over one stack: every registration becomes steps, as Pulumi's engine would take them.

It differs from the engine in one point, to tell more at once: when a resource fails, what does not depend on it
is still tried. What was made is kept in the state, so that the next run goes on from there.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from bedplate.rehearsal import state as urns
from bedplate.rehearsal.change import REGION, Changer, closure, deletion_order, from_registration, making_order, needs
from bedplate.rehearsal.registration import Providers, Registration, earlier_urns, provider_id
from bedplate.rehearsal.state import RUN, Entry, Failure, Op, Refusal, Snapshot, Step
from bedplate.rehearsal.wire import holds_unknown, secret_texts


@dataclass(slots=True)
class Deployment:
    """The bookkeeping of one run: the state before, the state so far, the steps and the failures."""

    stack: str
    project: str
    before: Snapshot
    providers: Providers
    preview: bool = False
    watch: Callable[[Step], None] = lambda _: None
    steps: list[Step] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    exports: dict[str, Any] = field(default_factory=dict)
    _now: dict[str, Entry] = field(default_factory=dict)
    _seen: set[str] = field(default_factory=set)
    _lost: set[str] = field(default_factory=set)
    _earlier: dict[str, tuple[str, ...]] = field(default_factory=dict)
    _changer: Changer = field(init=False)

    def __post_init__(self) -> None:
        self.providers.restore(self.before)
        self._changer = Changer(dict(self.before.entries), self.providers, self.preview, self._note)

    def register(self, asked: Registration) -> Entry | None:
        """Take the steps of one resource; return its entry, or None when it failed or was skipped."""
        urn = self.urn_of(asked.parent, asked.type, asked.name)
        try:
            self._claim(urn)
        except Refusal as refusal:
            self.fail(urn, refusal)
            return None
        old = self._adopt(asked, urn)
        if self._skips(asked, urn):
            return None
        try:
            entry = self._settled(asked, urn, old)
        except Refusal as refusal:
            self.fail(urn, refusal.without(secret_texts(dict(asked.inputs))))
            return None
        self._now[urn] = entry
        return entry

    def read(self, entry: Entry) -> None:
        """Note a resource that the program reads and does not own; one it made under that name goes, if another.

        Raises Refusal for a second resource of one name: the engine takes a read for a resource like any other.
        """
        self._claim(entry.urn)
        old = self._changer.old.get(entry.urn)
        if old is not None and not old.external and old.ident != entry.ident:
            self._changer.replaced.append(old)
        self._note(Step(Op.READ, entry.urn))
        self._now[entry.urn] = entry

    def outputs(self, urn: str, outputs: Mapping[str, Any]) -> None:
        """Take the outputs that a component, or the stack itself, registers when it is done."""
        if urns.parse(urn).type == urns.STACK_TYPE:
            self.exports = dict(outputs)
        if urn in self._now:
            self._now[urn] = replace(self._now[urn], outputs=dict(outputs))

    def secrets(self) -> frozenset[str]:
        """Return the secrets of all resources of the run, but for such as are too short to be told from a word."""
        held = [*self.before.entries.values(), *self._now.values()]
        texts = (secret_texts({"in": dict(each.inputs), "out": dict(each.outputs)}) for each in held)
        return frozenset(text for text in frozenset().union(*texts) if len(text) >= RUN)

    def provider_reference(self, asked_provider: str, token: str, version: str) -> str:
        """Return who serves a token: the provider asked for, or the default one, made on its first use."""
        if asked_provider:
            return asked_provider
        entry = self.providers.default_entry(self.stack, self.project, token, version)
        if entry.urn not in self._now:
            self._seen.add(entry.urn)
            self._settle_provider(entry, self.before.entries.get(entry.urn))
        return f"{entry.urn}::{entry.ident}"

    def urn_of(self, parent: str, token: str, name: str) -> str:
        """Return the URN of a resource of this stack."""
        return urns.child(self.stack, self.project, parent, token, name)

    def finish(self) -> None:
        """Delete what the program no longer declares and what was replaced, dependents first.

        A run with failures deletes nothing and takes no export away: the program may have meant to keep what it
        could not declare.
        """
        if self.failures:
            told = {key: value for key, value in self.exports.items() if not holds_unknown(value)}
            self.exports = {**self.before.exports, **told}
            return
        gone = [entry for urn, entry in self._changer.old.items() if urn not in self._seen]
        self._bury([*gone, *self._doomed()])

    def destroy(self) -> None:
        """Delete everything but what is protected and what that needs to live; exports go with the last resource."""
        kept = closure((urn for urn, entry in self.before.entries.items() if entry.protect), self.before.entries)
        rest = [entry for urn, entry in self.before.entries.items() if urn not in kept]
        self._bury([*rest, *self._doomed()])
        self.exports = dict(self.before.exports) if self._changer.old.keys() - self._changer.deleted else {}

    def _bury(self, entries: list[Entry]) -> None:
        """Delete entries, dependents first; what a failed deletion leaves behind keeps what it needs."""
        replaced = {id(entry) for entry in self._doomed()}
        self._changer.doomed.update(entry.urn for entry in entries)
        needed: set[str] = set()
        for entry in deletion_order(entries):
            # What is protected is told, even where it would be left for the sake of another.
            if entry.urn in needed and not entry.protect:
                needed |= needs(entry)
                continue
            try:
                self._changer.delete(entry, Op.DELETE_REPLACED if id(entry) in replaced else Op.DELETE)
            except Refusal as refusal:
                needed |= needs(entry)
                self.fail(entry.urn, refusal.without(secret_texts({**entry.inputs, **entry.outputs})))

    def snapshot(self) -> Snapshot:
        """Return the state after this run; what it did not reach is kept as it was."""
        untouched = {urn: entry for urn, entry in self._changer.old.items() if urn not in self._now}
        left = [one for urn, one in untouched.items() if urn not in self._changer.deleted]
        entries = making_order([*left, *self._now.values()])
        return Snapshot({entry.urn: entry for entry in entries}, tuple(self._doomed()), self.exports)

    def _claim(self, urn: str) -> None:
        if urn in self._seen:
            name = urns.parse(urn).name
            raise Refusal("DuplicateUrn", f"two resources are called {name}; give one another name")
        self._seen.add(urn)

    def _doomed(self) -> list[Entry]:
        return [
            entry for entry in (*self.before.leftovers, *self._changer.replaced) if entry not in self._changer.buried
        ]

    def _settled(self, asked: Registration, urn: str, old: Entry | None) -> Entry:
        if asked.type.startswith(urns.PROVIDER_PREFIX):
            inputs = {**asked.inputs, "version": asked.version} if asked.version else asked.inputs
            made = replace(from_registration(asked, urn), ident=provider_id(inputs), inputs=inputs, outputs=inputs)
            return self._settle_provider(made, old)
        if not asked.custom:
            self._note(Step(_component_op(asked, old), urn))
            return replace(from_registration(asked, urn), outputs=old.outputs if old else {})
        reference = self.provider_reference(asked.provider, asked.type, asked.version)
        asked = replace(asked, provider=reference)
        return self._changer.settle(asked, urn, old)

    def _settle_provider(self, made: Entry, old: Entry | None) -> Entry:
        self.providers.configure(made.urn, made.inputs)
        self.providers.log_in(made.urn, made.inputs)
        for step in _provider_steps(made, old):
            self._note(step)
        if old is not None and old.ident != made.ident:
            self._changer.replaced.append(old)
        self._now[made.urn] = made
        return made

    def _adopt(self, asked: Registration, urn: str) -> Entry | None:
        """Return the entry that a resource had, under this URN or an earlier one, under its present URN."""
        old = self._changer.old
        self._earlier[urn] = earlier_urns(asked, urn, self._earlier.get(asked.parent, ()))
        former = next((one for one in self._earlier[urn] if one in old), None)
        if urn not in old and former is not None:
            self._changer.rename(former, urn)
        return old.get(urn)

    def _skips(self, asked: Registration, urn: str) -> bool:
        provider = asked.provider.rpartition("::")[0]
        blocked = self._lost.intersection((*asked.dependencies, asked.parent, asked.deleted_with, provider))
        if blocked:
            names = ", ".join(sorted(urns.parse(one).name for one in blocked))
            self._lost.add(urn)
            self.failures.append(Failure(urn, "Skipped", f"not tried: {names} failed", skipped=True))
        return bool(blocked)

    def fail(self, urn: str, refusal: Refusal) -> None:
        """Note that a resource failed; what depends on it will be skipped."""
        self._lost.add(urn)
        self.failures.append(Failure(urn, refusal.code, refusal.message, refusal.key))

    def _note(self, step: Step) -> None:
        self.steps.append(step)
        self.watch(step)


def _provider_steps(made: Entry, old: Entry | None) -> tuple[Step, ...]:
    if old is None:
        return (Step(Op.CREATE, made.urn),)
    keys = tuple(sorted(key for key in {*old.inputs, *made.inputs} if old.inputs.get(key) != made.inputs.get(key)))
    if old.ident != made.ident:
        return tuple(Step(op, made.urn, keys, (REGION,), keys) for op in (Op.CREATE_REPLACEMENT, Op.REPLACE))
    return (Step(Op.UPDATE, made.urn, keys, paths=keys) if keys else Step(Op.SAME, made.urn),)


def _component_op(asked: Registration, old: Entry | None) -> Op:
    if old is None:
        return Op.CREATE
    return Op.SAME if dict(old.inputs) == dict(asked.inputs) else Op.UPDATE
