"""The state of one run of a program: each registration becomes steps, as in Pulumi's engine.

One difference to the engine: if a resource fails, the run still tries the resources that do not depend on it, to
report more failures at once. The state keeps the created resources, and the next run continues from there.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from bedplate.rehearsal.change import (
    REGION,
    StepExecutor,
    creation_order,
    deletion_order,
    from_registration,
    required_urns,
    with_required,
)
from bedplate.rehearsal.provider import Providers, provider_id
from bedplate.rehearsal.registration import Registration, earlier_urns
from bedplate.rehearsal.state import (
    PROVIDER_PREFIX,
    SHARED_CHARACTERS,
    STACK_TYPE,
    Entry,
    Failure,
    Op,
    ResourceError,
    Snapshot,
    Step,
    child_urn,
    parse_urn,
)
from bedplate.rehearsal.wire import holds_unknown, secret_texts


@dataclass(slots=True)
class Deployment:
    """The data of one run: the state before, the state so far, the steps and the failures."""

    stack: str
    project: str
    before: Snapshot
    providers: Providers
    preview: bool = False
    watch: Callable[[Step], None] = lambda _: None
    steps: list[Step] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    exports: dict[str, Any] = field(default_factory=dict)
    _entries: dict[str, Entry] = field(default_factory=dict)
    _registered: set[str] = field(default_factory=set)
    _failed: set[str] = field(default_factory=set)
    _earlier_urns: dict[str, tuple[str, ...]] = field(default_factory=dict)
    _executor: StepExecutor = field(init=False)

    def __post_init__(self) -> None:
        self.providers.restore(self.before)
        self._executor = StepExecutor(dict(self.before.entries), self.providers, self.preview, self._add_step)

    def register(self, registration: Registration) -> Entry | None:
        """Execute the steps of one resource; return its entry, or None if it failed or was skipped."""
        urn = self.urn_of(registration.parent, registration.type, registration.name)
        try:
            self._reserve(urn)
        except ResourceError as refusal:
            self.fail(urn, refusal)
            return None
        old = self._old_entry(registration, urn)
        if self._is_skipped(registration, urn):
            return None
        try:
            entry = self._apply(registration, urn, old)
        except ResourceError as refusal:
            self.fail(urn, refusal.without(secret_texts(dict(registration.inputs))))
            return None
        self._entries[urn] = entry
        return entry

    def read(self, entry: Entry) -> None:
        """Add a resource that the program reads with `get`.

        If an earlier program created another resource under this URN, that resource is deleted at the end of the run.
        Raises ResourceError if the program has already declared the URN: the engine counts a read as a resource.
        """
        self._reserve(entry.urn)
        old = self._executor.old.get(entry.urn)
        if old is not None and not old.external and old.ident != entry.ident:
            self._executor.replaced.append(old)
        self._add_step(Step(Op.READ, entry.urn))
        self._entries[entry.urn] = entry

    def register_outputs(self, urn: str, outputs: Mapping[str, Any]) -> None:
        """Store the outputs of a component or, as exports, of the stack."""
        if parse_urn(urn).type == STACK_TYPE:
            self.exports = dict(outputs)
        if urn in self._entries:
            self._entries[urn] = replace(self._entries[urn], outputs=dict(outputs))

    def secrets(self) -> frozenset[str]:
        """Return the secrets of all resources of the run that are long enough to be distinct from ordinary words."""
        entries = [*self.before.entries.values(), *self._entries.values()]
        texts = (secret_texts({"in": dict(entry.inputs), "out": dict(entry.outputs)}) for entry in entries)
        return frozenset(text for text in frozenset().union(*texts) if len(text) >= SHARED_CHARACTERS)

    def provider_reference(self, explicit: str, token: str, version: str) -> str:
        """Return the explicit provider if there is one, else the default one of a type, created on first use."""
        if explicit:
            return explicit
        entry = self.providers.default_entry(self.stack, self.project, token, version)
        if entry.urn not in self._entries:
            self._registered.add(entry.urn)
            self._apply_provider(entry, self.before.entries.get(entry.urn))
        return f"{entry.urn}::{entry.ident}"

    def urn_of(self, parent: str, token: str, name: str) -> str:
        """Return the URN of a resource of this stack."""
        return child_urn(self.stack, self.project, parent, token, name)

    def finish(self) -> None:
        """Delete replaced and undeclared resources, dependents first.

        A run with failures deletes nothing and removes no export: the program may have stopped before it
        declared them.
        """
        if self.failures:
            known_exports = {key: value for key, value in self.exports.items() if not holds_unknown(value)}
            self.exports = {**self.before.exports, **known_exports}
            return
        undeclared = [entry for urn, entry in self._executor.old.items() if urn not in self._registered]
        self._delete_all([*undeclared, *self._replaced_entries()])

    def destroy(self) -> None:
        """Delete all resources except protected ones and their requirements; the last one removes the exports."""
        old = self.before.entries
        kept = with_required((urn for urn, entry in old.items() if entry.protect), old)
        self._delete_all([*(entry for urn, entry in old.items() if urn not in kept), *self._replaced_entries()])
        self.exports = dict(self.before.exports) if self._executor.old.keys() - self._executor.deleted else {}

    def snapshot(self) -> Snapshot:
        """Return the state after this run; resources that the run did not reach keep their old entries."""
        handled_urns = {*self._entries, *self._executor.deleted}
        untouched = [entry for urn, entry in self._executor.old.items() if urn not in handled_urns]
        entries = creation_order([*untouched, *self._entries.values()])
        return Snapshot({entry.urn: entry for entry in entries}, tuple(self._replaced_entries()), self.exports)

    def fail(self, urn: str, refusal: ResourceError) -> None:
        """Record that a resource failed; its dependents are skipped."""
        self._failed.add(urn)
        self.failures.append(Failure(urn, refusal.code, refusal.message, refusal.key))

    def _delete_all(self, entries: list[Entry]) -> None:
        """Delete entries, dependents first; if a deletion fails, keep all that the entry requires."""
        replaced = {id(entry) for entry in self._replaced_entries()}
        self._executor.deleting.update(entry.urn for entry in entries)
        required: set[str] = set()
        for entry in deletion_order(entries):
            # A protected entry is reported even if another entry requires it.
            if entry.urn in required and not entry.protect:
                required |= required_urns(entry)
                continue
            try:
                self._executor.delete(entry, Op.DELETE_REPLACED if id(entry) in replaced else Op.DELETE)
            except ResourceError as refusal:
                required |= required_urns(entry)
                self.fail(entry.urn, refusal.without(secret_texts({**entry.inputs, **entry.outputs})))

    def _reserve(self, urn: str) -> None:
        if urn in self._registered:
            resource = parse_urn(urn)
            raise ResourceError(
                "DuplicateUrn", f"two resources of type {resource.type} have the name {resource.name}; rename one"
            )
        self._registered.add(urn)

    def _replaced_entries(self) -> list[Entry]:
        replaced = (*self.before.leftovers, *self._executor.replaced)
        return [entry for entry in replaced if entry not in self._executor.deleted_entries]

    def _apply(self, registration: Registration, urn: str, old: Entry | None) -> Entry:
        entry = from_registration(registration, urn)
        if registration.type.startswith(PROVIDER_PREFIX):
            inputs = {**entry.inputs, "version": registration.version} if registration.version else entry.inputs
            provider = replace(entry, ident=provider_id(inputs), inputs=inputs, outputs=inputs)
            return self._apply_provider(provider, old)
        if not registration.custom:
            self._add_step(Step(_component_op(registration, old), urn))
            return replace(entry, outputs=old.outputs if old else {})
        reference = self.provider_reference(registration.provider, registration.type, registration.version)
        return self._executor.apply(replace(registration, provider=reference), urn, old)

    def _apply_provider(self, entry: Entry, old: Entry | None) -> Entry:
        self.providers.configure(entry.urn, entry.inputs)
        self.providers.check_account(entry.urn, entry.inputs)
        for step in _provider_steps(entry, old):
            self._add_step(step)
        if old is not None and old.ident != entry.ident:
            self._executor.replaced.append(old)
        self._entries[entry.urn] = entry
        return entry

    def _old_entry(self, registration: Registration, urn: str) -> Entry | None:
        """Return the old entry of a resource under its present URN, also if an alias names an earlier URN."""
        old = self._executor.old
        self._earlier_urns[urn] = earlier_urns(registration, urn, self._earlier_urns.get(registration.parent, ()))
        former = next((earlier for earlier in self._earlier_urns[urn] if earlier in old), None)
        if urn not in old and former is not None:
            self._executor.rename(former, urn)
        return old.get(urn)

    def _is_skipped(self, registration: Registration, urn: str) -> bool:
        provider = registration.provider.rpartition("::")[0]
        required = (*registration.dependencies, registration.parent, registration.deleted_with, provider)
        failed = self._failed.intersection(required)
        if failed:
            names = ", ".join(sorted(parse_urn(name).name for name in failed))
            self._failed.add(urn)
            self.failures.append(Failure(urn, "Skipped", f"skipped because {names} failed", skipped=True))
        return bool(failed)

    def _add_step(self, step: Step) -> None:
        self.steps.append(step)
        self.watch(step)


def _provider_steps(entry: Entry, old: Entry | None) -> tuple[Step, ...]:
    """Return the steps of a provider. Another region changes its id and replaces it; other inputs update it."""
    if old is None:
        return (Step(Op.CREATE, entry.urn),)
    keys = tuple(sorted(key for key in {*old.inputs, *entry.inputs} if old.inputs.get(key) != entry.inputs.get(key)))
    if old.ident != entry.ident:
        return tuple(Step(op, entry.urn, keys, (REGION,), keys) for op in (Op.CREATE_REPLACEMENT, Op.REPLACE))
    return (Step(Op.UPDATE, entry.urn, keys, paths=keys) if keys else Step(Op.SAME, entry.urn),)


def _component_op(registration: Registration, old: Entry | None) -> Op:
    if old is None:
        return Op.CREATE
    return Op.SAME if dict(old.inputs) == dict(registration.inputs) else Op.UPDATE
