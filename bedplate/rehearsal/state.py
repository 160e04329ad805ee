"""Unique resource names, in the engine's form `urn:pulumi:<stack>::<project>::<types>::<name>`."""

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
    """The parts of a URN; `types` are the types of its parents and its own, joined by `$`."""

    stack: str
    project: str
    types: str
    name: str

    def __str__(self) -> str:
        return f"urn:pulumi:{self.stack}::{self.project}::{self.types}::{self.name}"

    @property
    def type(self) -> str:
        """The resource's own type."""
        return self.types.rpartition("$")[2]


def parse(urn: str) -> Urn:
    """Return the parts of a URN; ValueError when it is none."""
    stack, project, types, name = urn.removeprefix("urn:pulumi:").split("::", 3)
    return Urn(stack, project, types, name)


def child(stack: str, project: str, parent: str, token: str, name: str) -> str:
    """Return the URN of a resource: its parent's whole qualified type counts, the root stack's does not."""
    above = parse(parent).types if parent else ""
    types = token if above in ("", STACK_TYPE) else f"{above}${token}"
    return str(Urn(stack, project, types, name))


# Codes of ours for what protection forbids: to delete what nothing asks for any more, and to replace what is asked for.
PROTECTED = "Protected"
PROTECTED_IN_PLACE = "ProtectedInPlace"


class Op(StrEnum):
    """The engine's operations, as its events name them."""

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
    """One step; `keys` are the inputs that changed, `replace_keys` those of them that force a replacement."""

    op: Op
    urn: str
    keys: tuple[str, ...] = ()
    replace_keys: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    """The changed values themselves, such as `tags.purpose` or `vpcs[0].vpcId`."""

    @property
    def is_in_cloud(self) -> bool:
        """Whether it is about something in AWS, not a component, a provider or the stack."""
        return parse(self.urn).type.startswith("aws:")

    @property
    def is_change(self) -> bool:
        """Whether anything differs after it."""
        return self.op not in (Op.SAME, Op.READ)


@dataclass(frozen=True, slots=True)
class Failure:
    """A resource that could not be made, changed or deleted, and the reason."""

    urn: str
    code: str
    message: str
    key: str = ""
    skipped: bool = False
    """Not tried, because something it depends on had failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One resource of a stack's state. Inputs are those the provider checked; secrets stay marked."""

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
    """Inputs that the provider filled in."""
    delete_first: bool | None = None
    deleted_with: str = ""
    external: bool = False
    """Read, not made, by this stack: never changed nor deleted."""

    @property
    def type(self) -> str:
        """The resource's own type token."""
        return parse(self.urn).type

    @property
    def name(self) -> str:
        """The resource's logical name."""
        return parse(self.urn).name

    @property
    def is_provider(self) -> bool:
        """Whether it is a provider, not something in the cloud."""
        return self.type.startswith(PROVIDER_PREFIX)

    @property
    def is_in_cloud(self) -> bool:
        """Whether there is something in the cloud that this stack made."""
        return self.custom and not self.is_provider and not self.external


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The state of one stack, in the order its resources were registered."""

    entries: Mapping[str, Entry] = field(default_factory=dict)
    leftovers: tuple[Entry, ...] = ()
    """Resources that were replaced and not deleted yet, because the run ended before."""
    exports: Mapping[str, Any] = field(default_factory=dict)


MARK = "[secret]"
# Characters in a row that a message and a secret do not share by chance.
RUN = 8


def hidden(message: str, secrets: Collection[str]) -> str:
    """Return a message in which every secret is a mark, and so is every run of RUN characters out of one."""
    for secret in sorted(secrets, key=len, reverse=True):
        message = _without_runs(message.replace(secret, MARK), secret)
    return message


def _without_runs(message: str, secret: str) -> str:
    shared: set[int] = set()
    for start in range(len(message) - RUN + 1):
        if message[start : start + RUN] in secret:
            shared.update(range(start, start + RUN))
    if not shared:
        return message
    parts = groupby(enumerate(message), key=lambda each: each[0] in shared)
    return "".join(MARK if hide else "".join(sign for _, sign in part) for hide, part in parts)


class Refusal(Exception):
    """One resource cannot be what the program asks for; `code` is AWS's error code where it has one."""

    def __init__(self, code: str, message: str, *, key: str = "") -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.key = key

    def without(self, secrets: Collection[str]) -> "Refusal":
        """Return the refusal with every secret in its message hidden."""
        return Refusal(self.code, hidden(self.message, secrets), key=self.key)


class Unsupported(Refusal):
    """The rehearsal has no model of this: it says so instead of guessing."""

    def __init__(self, message: str, *, key: str = "") -> None:
        super().__init__("Unsupported", message, key=key)


@dataclass(frozen=True, slots=True)
class Ledger:
    """Outputs of live resources by type, region and id; one ledger serves all stacks of a rehearsal."""

    _rows: dict[tuple[str, str], dict[str, dict[str, Any]]] = field(default_factory=dict)

    def add(self, token: str, region: str, ident: str, outputs: Mapping[str, Any]) -> None:
        """Note a resource that was made or changed."""
        self._rows.setdefault((token, region), {})[ident] = dict(outputs)

    def remove(self, token: str, region: str, ident: str) -> None:
        """Strike a resource that was deleted."""
        self._rows.get((token, region), {}).pop(ident, None)

    def find(self, token: str, region: str, ident: str) -> dict[str, Any] | None:
        """Return the outputs of a live resource, or None."""
        return self._rows.get((token, region), {}).get(ident)

    def live(self, token: str, region: str) -> tuple[Mapping[str, Any], ...]:
        """Return the outputs of every live resource of a type in a region."""
        return tuple(self._rows.get((token, region), {}).values())
