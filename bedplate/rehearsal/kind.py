"""The model of a resource type: a resource kind (`ResourceKind`).

A kind lists every input that it models, and whether a change of it updates or replaces the resource. Any other
input is an error, so that no input of a program is dropped silently. These facts, the defaults and `delete_first`
come from the AWS provider. `complaints` validates inputs against the schema.
"""

import enum
import pkgutil
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from importlib import import_module
from types import MappingProxyType
from typing import Any

from pulumi import _types

from bedplate.rehearsal import schema
from bedplate.rehearsal.simulation import Aws
from bedplate.rehearsal.wire import UNKNOWN, Reference, Secret

# Properties of a resource by their names in the Pulumi schema (camelCase), as plain JSON values.
Props = Mapping[str, Any]


class Change(StrEnum):
    """The effect of a changed input on an existing resource."""

    UPDATES = "updates"
    REPLACES = "replaces"


class Support(StrEnum):
    """The origin of a model: moto, or a fake of this project."""

    REHEARSED = "rehearsed"
    FAKED = "faked"


@dataclass(frozen=True, slots=True)
class Naming:
    """The automatic name of a resource without a name: its logical name and seven hexadecimal digits."""

    key: str = "name"
    longest: int = 255
    lower: bool = False
    prefix: str = ""


@dataclass(frozen=True, slots=True)
class InvalidInput:
    """An input that the provider or AWS refuses before the resource is created."""

    key: str
    reason: str


def update_nothing(aws: Aws, ident: str, old: Props, new: Props) -> None:
    """Do nothing: the update of a kind that has no inputs to update but tags."""


def delete_nothing(aws: Aws, ident: str, outputs: Props) -> None:
    """Do nothing: the delete of a kind that AWS deletes together with another resource."""


def accept_all(aws: Aws, inputs: Props) -> Iterator[InvalidInput]:
    """Yield nothing: the validation of a kind if moto itself refuses invalid inputs."""
    yield from ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceKind:
    """The model of one resource type: how the simulated AWS creates, reads, updates and deletes it."""

    token: str
    inputs: Mapping[str, Change]
    create: Callable[[Aws, Props], str]
    """Create it and return its id; the input `tags` includes the default tags of the provider."""
    read: Callable[[Aws, str, Props], dict[str, Any]]
    """Return the outputs that AWS computes, by their names in the Pulumi schema; the caller adds the inputs."""
    delete: Callable[[Aws, str, Props], None]
    """Delete it; the last argument is its last outputs."""
    update: Callable[[Aws, str, Props, Props], None] = update_nothing
    """Update it in place from the old inputs to the new ones, tags included."""
    complaints: Callable[[Aws, Props], Iterator[InvalidInput]] = accept_all
    """Yield the inputs that AWS refuses and moto accepts; values may be unknown in a preview."""
    defaults: Props = field(default_factory=dict)
    """Inputs that the provider fills in if they are missing."""
    computed: frozenset[str] = frozenset()
    """Inputs that AWS computes if they are missing: to leave one out is not a change."""
    sets: frozenset[str] = frozenset()
    """Inputs that are sets: the order of their items has no meaning."""
    changed_by_update: frozenset[str] = frozenset()
    """Outputs that an update may change: unknown in a preview."""
    delete_first: bool = False
    naming: Naming | None = None
    support: Support = Support.REHEARSED
    note: str = ""
    """Why it is a fake, or the limits of the model; shown by `rehearse --types`."""


def updates(*names: str) -> dict[str, Change]:
    """Return inputs that are updated in place, for `Kind.inputs`."""
    return dict.fromkeys(names, Change.UPDATES)


def replaces(*names: str) -> dict[str, Change]:
    """Return inputs that replace the resource, for `Kind.inputs`."""
    return dict.fromkeys(names, Change.REPLACES)


# Enumerations of the SDK that are older than AWS: an unlisted value may be valid.
_LAGGING = frozenset({"InstanceType", "PlacementStrategy"})


def schema_violations(token: str, values: Mapping[str, Any]) -> Iterator[InvalidInput]:
    """Yield the inputs, at any depth, that the schema does not allow, and each missing required one."""
    yield from _structure(schema.args_class(token), values, "")


def _structure(cls: type, values: Mapping[str, Any], where: str) -> Iterator[InvalidInput]:
    for key in schema.required(cls):
        if values.get(key) is None:
            yield InvalidInput(f"{where}{key}", "is required")
    for key, item in values.items():
        if key not in schema.fields(cls):
            yield InvalidInput(f"{where}{key}", f"is not an input of {cls.__name__}")
        elif item is not None:
            yield from _value(schema.fields(cls)[key], item, f"{where}{key}")


def _value(annotation: Any, item: object, where: str) -> Iterator[InvalidInput]:  # noqa: ANN401  # any annotation
    expected = _types.unwrap_type(annotation)
    if item is UNKNOWN or expected is typing.Any:
        return
    if isinstance(item, Secret):
        inner = _value(annotation, item.value, where)
        yield from (InvalidInput(complaint.key, "is a secret of the wrong type") for complaint in inner)
    elif isinstance(item, Reference):
        yield InvalidInput(where, "is a resource; pass its id or another output")
    elif typing.get_origin(expected) is typing.Union:
        yield from _union(typing.get_args(expected), item, where)
    elif typing.get_origin(expected) is not None:
        yield from _collection(expected, item, where)
    elif _types.is_input_type(expected):
        if isinstance(item, Mapping):
            yield from _structure(expected, item, f"{where}.")
        else:
            yield InvalidInput(where, f"must be a mapping ({expected.__name__})")
    else:
        yield from _scalar(expected, item, where)


def _union(arms: tuple[Any, ...], item: object, where: str) -> Iterator[InvalidInput]:
    # The SDK declares an enumeration as "enum or any string"; the provider accepts its values only.
    enums = [arm for arm in arms if isinstance(arm, type) and issubclass(arm, enum.Enum)]
    by_arm = [list(_value(arm, item, where)) for arm in enums or arms if arm is not type(None)]
    if all(by_arm):
        yield from min(by_arm, key=len)


def _collection(expected: Any, item: object, where: str) -> Iterator[InvalidInput]:  # noqa: ANN401  # any annotation
    inner = typing.get_args(expected)[-1]
    if schema.plain_kind(expected) is list:
        if isinstance(item, list):
            for n, part in enumerate(item):
                yield from _value(inner, part, f"{where}[{n}]")
        else:
            yield InvalidInput(where, "must be a list")
    elif isinstance(item, Mapping):
        for key, part in item.items():
            yield from _value(inner, part, f"{where}.{key}")
    else:
        yield InvalidInput(where, "must be a mapping")


def _scalar(expected: type, item: object, where: str) -> Iterator[InvalidInput]:
    if issubclass(expected, enum.Enum):
        allowed = [member.value for member in expected]
        if item not in allowed and expected.__name__ not in _LAGGING:
            yield InvalidInput(where, f"{item!r} is not one of {', '.join(map(str, allowed))}")
    elif not _is(item, expected):
        yield InvalidInput(where, f"must be {_TYPES.get(expected, expected.__name__)}, not {item!r}")


_TYPES = {bool: "a boolean", int: "an integer", float: "a number", str: "a string"}


def _is(item: object, expected: type) -> bool:
    if expected is float:
        return isinstance(item, int | float) and not isinstance(item, bool)
    return isinstance(item, expected) and (expected is bool or not isinstance(item, bool))


def find_kinds(package: str, path: Iterable[str]) -> Mapping[str, ResourceKind]:
    """Return the resource kinds at the top level of the package's modules, by token."""
    kinds: dict[str, ResourceKind] = {}
    for module in pkgutil.iter_modules(path, f"{package}."):
        for value in vars(import_module(module.name)).values():
            if isinstance(value, ResourceKind) and kinds.setdefault(value.token, value) is not value:
                raise AssertionError(f"{module.name} has a second row for {value.token}")
    return MappingProxyType(dict(sorted(kinds.items())))


def capitalized(name: str) -> str:
    """Return the name that AWS gives to a property of the schema: `cidrBlock` is `CidrBlock`."""
    return name[0].upper() + name[1:]
