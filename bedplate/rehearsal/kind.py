"""A resource kind: what the rehearsal knows about one type of AWS resource, as a row of a table.

`inputs` names every input that the kind can place, and what changing it does; an input that is not named is refused,
so that nothing a program asks for is dropped in silence. What changing an input does, the defaults, and which kinds
must be deleted before they are replaced are facts of the AWS provider.
"""

import enum
import pkgutil
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from importlib import import_module
from types import MappingProxyType
from typing import Any, Protocol, TypeVar

from pulumi import _types

from bedplate.rehearsal import schema
from bedplate.rehearsal.simulation import Aws
from bedplate.rehearsal.wire import UNKNOWN, Reference, Secret

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


# Enumerations of the SDK that lag behind AWS: a value outside them proves nothing.
_LAGGING = frozenset({"InstanceType", "PlacementStrategy"})


def complaints(token: str, values: Mapping[str, Any]) -> Iterator[Complaint]:
    """Yield every input, at any depth, that the schema does not allow, and every one that is missing."""
    yield from _structure(schema.args_class(token), values, "")


def _structure(cls: type, values: Mapping[str, Any], where: str) -> Iterator[Complaint]:
    for key in schema.required(cls):
        if values.get(key) is None:
            yield Complaint(f"{where}{key}", "is required")
    for key, item in values.items():
        if key not in schema.fields(cls):
            yield Complaint(f"{where}{key}", f"is no input of {cls.__name__}")
        elif item is not None:
            yield from _value(schema.fields(cls)[key], item, f"{where}{key}")


def _value(annotation: Any, item: object, where: str) -> Iterator[Complaint]:  # noqa: ANN401  # any annotation
    wanted = _types.unwrap_type(annotation)
    if item is UNKNOWN or wanted is typing.Any:
        return
    if isinstance(item, Secret):
        hidden = _value(annotation, item.value, where)
        yield from (Complaint(found.key, "is secret, and not of the form it should be") for found in hidden)
    elif isinstance(item, Reference):
        yield Complaint(where, "is a whole resource; pass its id or another of its outputs")
    elif typing.get_origin(wanted) is typing.Union:
        yield from _union(typing.get_args(wanted), item, where)
    elif typing.get_origin(wanted) is not None:
        yield from _collection(wanted, item, where)
    elif _types.is_input_type(wanted):
        if isinstance(item, Mapping):
            yield from _structure(wanted, item, f"{where}.")
        else:
            yield Complaint(where, f"should be a mapping ({wanted.__name__})")
    else:
        yield from _scalar(wanted, item, where)


def _union(arms: tuple[Any, ...], item: object, where: str) -> Iterator[Complaint]:
    # The SDK writes an enumeration as "enum or any string"; the provider takes only the enumeration.
    enums = [arm for arm in arms if isinstance(arm, type) and issubclass(arm, enum.Enum)]
    found = [list(_value(arm, item, where)) for arm in enums or arms if arm is not type(None)]
    if all(found):
        yield from min(found, key=len)


def _collection(wanted: Any, item: object, where: str) -> Iterator[Complaint]:  # noqa: ANN401  # any annotation
    inner = typing.get_args(wanted)[-1]
    if schema.plain_kind(wanted) is list:
        if isinstance(item, list):
            for n, part in enumerate(item):
                yield from _value(inner, part, f"{where}[{n}]")
        else:
            yield Complaint(where, "should be a list")
    elif isinstance(item, Mapping):
        for key, part in item.items():
            yield from _value(inner, part, f"{where}.{key}")
    else:
        yield Complaint(where, "should be a mapping")


def _scalar(wanted: type, item: object, where: str) -> Iterator[Complaint]:
    if issubclass(wanted, enum.Enum):
        allowed = [member.value for member in wanted]
        if item not in allowed and wanted.__name__ not in _LAGGING:
            yield Complaint(where, f"{item!r} is not one of {', '.join(map(str, allowed))}")
    elif not _is(item, wanted):
        yield Complaint(where, f"should be {_WORDS.get(wanted, wanted.__name__)}, not {item!r}")


_WORDS = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}


def _is(item: object, wanted: type) -> bool:
    if wanted is float:
        return isinstance(item, int | float) and not isinstance(item, bool)
    return isinstance(item, wanted) and (wanted is bool or not isinstance(item, bool))


class Row(Protocol):
    """What a table holds: one row for each type token of the Pulumi schema."""

    @property
    def token(self) -> str:
        """The type token, such as `aws:ec2/vpc:Vpc`."""


AnyRow = TypeVar("AnyRow", bound=Row)


def find_rows(package: str, path: Iterable[str], row_type: type[AnyRow]) -> Mapping[str, AnyRow]:
    """Return every `row_type` that a module of the package has at its top level, by token."""
    rows: dict[str, AnyRow] = {}
    for module in pkgutil.iter_modules(path, f"{package}."):
        for value in vars(import_module(module.name)).values():
            if isinstance(value, row_type) and rows.setdefault(value.token, value) is not value:
                raise AssertionError(f"{module.name} has a second row for {value.token}")
    return MappingProxyType(dict(sorted(rows.items())))
