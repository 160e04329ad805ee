"""The state of a stack and what changes it: URNs, state entries, steps, failures and errors.

`Ledger` indexes the outputs of all live resources; `hidden` removes secrets from messages. A URN has the engine's
form `urn:pulumi:<stack>::<project>::<types>::<name>`.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import groupby
from typing import Any

STACK_TYPE = "pulumi:pulumi:Stack"
STACK_REFERENCE_TYPE = "pulumi:pulumi:StackReference"
PROVIDER_PREFIX = "pulumi:providers:"


@dataclass(frozen=True, slots=True)
class Urn:
    """The parts of a URN; `types` are the types of its parents and its type, joined by `$`."""

    stack: str
    project: str
    types: str
    name: str

    def __str__(self) -> str:
        return f"urn:pulumi:{self.stack}::{self.project}::{self.types}::{self.name}"

    @property
    def type(self) -> str:
        """The type token of the resource."""
        return self.types.rpartition("$")[2]


def parse_urn(urn: str) -> Urn:
    """Return the parts of a URN; raise ValueError if the text is not a URN."""
    stack, project, types, name = urn.removeprefix("urn:pulumi:").split("::", 3)
    return Urn(stack, project, types, name)


def child_urn(stack: str, project: str, parent: str, token: str, name: str) -> str:
    """Return the URN of a resource; it includes the types of all its parents except the stack."""
    above = parse_urn(parent).types if parent else ""
    types = token if above in ("", STACK_TYPE) else f"{above}${token}"
    return str(Urn(stack, project, types, name))


# Failure codes: a protected resource must be deleted as undeclared, or replaced.
PROTECTED = "Protected"
PROTECTED_IN_PLACE = "ProtectedInPlace"


class Op(StrEnum):
    """The operations of Pulumi's engine, by the names of its events."""

    SAME = "same"
    CREATE = "create"
    UPDATE = "update"
    DELETE = "delete"
    REPLACE = "replace"
    CREATE_REPLACEMENT = "create-replacement"
    DELETE_REPLACED = "delete-replaced"
    READ = "read"
    DISCARD = "discard"


@dataclass(frozen=True, slots=True)
class Step:
    """One step; `keys` are the changed inputs, `replace_keys` force a replacement."""

    op: Op
    urn: str
    keys: tuple[str, ...] = ()
    replace_keys: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    """The paths of the changed values, such as `tags.purpose` or `vpcs[0].vpcId`."""

    @property
    def is_in_cloud(self) -> bool:
        """Whether the resource is in AWS, not a component, a provider or the stack."""
        return parse_urn(self.urn).type.startswith("aws:")

    @property
    def is_change(self) -> bool:
        """Whether the step changes anything."""
        return self.op not in (Op.SAME, Op.READ)


@dataclass(frozen=True, slots=True)
class Failure:
    """A resource that could not be created, updated or deleted, and the reason."""

    urn: str
    code: str
    message: str
    key: str = ""
    skipped: bool = False
    """Not tried because a dependency failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One resource of a stack's state. Inputs include the provider's defaults; secrets keep their marks."""

    urn: str
    custom: bool
    inputs: Mapping[str, Any]
    outputs: Mapping[str, Any]
    ident: str = ""
    parent: str = ""
    dependencies: tuple[str, ...] = ()
    property_dependencies: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    provider: str = ""
    protect: bool = False
    retain: bool = False
    defaults: frozenset[str] = frozenset()
    """The inputs that the provider filled in."""
    delete_first: bool | None = None
    deleted_with: str = ""
    external: bool = False
    """Read by this stack, not created: never changed or deleted."""

    @property
    def type(self) -> str:
        """The type token of the resource."""
        return parse_urn(self.urn).type

    @property
    def name(self) -> str:
        """The logical name of the resource."""
        return parse_urn(self.urn).name

    @property
    def is_provider(self) -> bool:
        """Whether the entry is a provider."""
        return self.type.startswith(PROVIDER_PREFIX)

    @property
    def is_in_cloud(self) -> bool:
        """Whether the entry is a resource in AWS that this stack created."""
        return self.custom and not self.is_provider and not self.external


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The state of one stack, in the order of registration."""

    entries: Mapping[str, Entry] = field(default_factory=dict)
    leftovers: tuple[Entry, ...] = ()
    """Replaced resources that the run did not delete because it failed before."""
    exports: Mapping[str, Any] = field(default_factory=dict)


MARK = "[secret]"
# A message and a secret do not share this many consecutive characters by chance.
SHARED_CHARACTERS = 8


def hidden(message: str, secrets: Collection[str]) -> str:
    """Return a message with a mark in place of each secret, and of each part of one with at least SHARED_CHARACTERS."""
    for secret in sorted(secrets, key=len, reverse=True):
        message = _without_runs(message.replace(secret, MARK), secret)
    return message


def _without_runs(message: str, secret: str) -> str:
    shared: set[int] = set()
    for start in range(len(message) - SHARED_CHARACTERS + 1):
        if message[start : start + SHARED_CHARACTERS] in secret:
            shared.update(range(start, start + SHARED_CHARACTERS))
    if not shared:
        return message
    parts = groupby(enumerate(message), key=lambda pair: pair[0] in shared)
    return "".join(MARK if hide else "".join(character for _, character in part) for hide, part in parts)


class ResourceError(Exception):
    """An error of one resource; `code` is the AWS error code if AWS has one for it."""

    def __init__(self, code: str, message: str, *, key: str = "") -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.key = key

    def without(self, secrets: Collection[str]) -> "ResourceError":
        """Return the same error with the secrets in its message hidden."""
        return ResourceError(self.code, hidden(self.message, secrets), key=self.key)


class UnsupportedError(ResourceError):
    """The rehearsal does not model this resource type, input or option."""

    def __init__(self, message: str, *, key: str = "") -> None:
        super().__init__("Unsupported", message, key=key)


@dataclass(frozen=True, slots=True)
class Ledger:
    """The outputs of all live resources of a rehearsal, by type, region and id."""

    _rows: dict[tuple[str, str], dict[str, dict[str, Any]]] = field(default_factory=dict)

    def add(self, token: str, region: str, ident: str, outputs: Mapping[str, Any]) -> None:
        """Store the outputs of a resource that was created or updated."""
        self._rows.setdefault((token, region), {})[ident] = dict(outputs)

    def remove(self, token: str, region: str, ident: str) -> None:
        """Remove a deleted resource."""
        self._rows.get((token, region), {}).pop(ident, None)

    def find(self, token: str, region: str, ident: str) -> dict[str, Any] | None:
        """Return the outputs of a live resource, or None."""
        return self._rows.get((token, region), {}).get(ident)

    def live(self, token: str, region: str) -> tuple[Mapping[str, Any], ...]:
        """Return the outputs of every live resource of a type in a region."""
        return tuple(self._rows.get((token, region), {}).values())
