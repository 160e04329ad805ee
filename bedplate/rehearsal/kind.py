"""A resource kind: what the rehearsal knows about one type of AWS resource, as a row of a table.

`inputs` names every input that the kind can place, and what changing it does; an input that is not named is refused,
so that nothing a program asks for is dropped in silence. What changing an input does, the defaults, and which kinds
must be deleted before they are replaced are facts of the AWS provider.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from bedplate.rehearsal.simulation import Aws

# Properties of a resource by the names of the Pulumi schema (camelCase), as plain JSON values.
Props = Mapping[str, Any]


class Change(StrEnum):
    """What changing an input does to a resource that exists."""

    UPDATES = "updates"
    REPLACES = "replaces"


class Support(StrEnum):
    """How far a kind can be trusted: moto's model of it, or a fake of ours."""

    REHEARSED = "rehearsed"
    FAKED = "faked"


@dataclass(frozen=True, slots=True)
class Naming:
    """How the provider names a resource that the program left unnamed: the logical name and seven hex digits."""

    key: str = "name"
    longest: int = 255
    lower: bool = False
    prefix: str = ""


@dataclass(frozen=True, slots=True)
class Complaint:
    """An input that the provider or AWS would refuse before anything is made."""

    key: str
    reason: str


def nothing_to_update(aws: Aws, ident: str, old: Props, new: Props) -> None:
    """Stand for the update of a kind none of whose inputs can be updated but its tags."""


def no_complaint(aws: Aws, inputs: Props) -> Iterator[Complaint]:
    """Stand for the rules of a kind whose limits AWS's own answer covers."""
    yield from ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One row: how a resource type is made, read, changed and deleted in the simulated AWS."""

    token: str
    inputs: Mapping[str, Change]
    create: Callable[[Aws, Props], str]
    """Make it and return its id; `tags` among the inputs are all tags, the provider's default ones included."""
    read: Callable[[Aws, str, Props], dict[str, Any]]
    """Return the outputs that AWS decides, by their names in the Pulumi schema; inputs need no repeating."""
    delete: Callable[[Aws, str, Props], None]
    """Delete it, given its last outputs."""
    update: Callable[[Aws, str, Props, Props], None] = nothing_to_update
    """Change it in place from the old inputs to the new ones; tags included."""
    complaints: Callable[[Aws, Props], Iterator[Complaint]] = no_complaint
    """Yield what AWS refuses and moto lets pass; values may be unknown in a preview."""
    defaults: Props = field(default_factory=dict)
    """Inputs that the provider fills in when they are left out."""
    computed: frozenset[str] = frozenset()
    """Inputs that AWS decides when left out: leaving one out again is no change."""
    sets: frozenset[str] = frozenset()
    """Inputs whose items have no order."""
    moves: frozenset[str] = frozenset()
    """Outputs that an update may move, so that a preview does not know them."""
    delete_first: bool = False
    naming: Naming | None = None
    support: Support = Support.REHEARSED
    note: str = ""
    """Why it is faked, or what its model leaves out; shown to the operator."""


def updates(*names: str) -> dict[str, Change]:
    """Return a table of inputs that are changed in place."""
    return dict.fromkeys(names, Change.UPDATES)


def replaces(*names: str) -> dict[str, Change]:
    """Return a table of inputs whose change needs a new resource."""
    return dict.fromkeys(names, Change.REPLACES)
