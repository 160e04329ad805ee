"""The models of the rehearsal: a resource kind, with the parameters of its calls, and a data function (`Lookup`).

A `Kind` lists every input that it models, and whether a change of it updates or replaces the resource. Any other
input is an error, so that no input of a program is dropped silently. These facts, the defaults and `delete_first`
come from the AWS provider. `complaints` validates inputs against the schema.

`call_parameters` follows botocore's model of an operation: the input `subnetIds` of Pulumi is `SubnetIds` or `SubnetId`
in EC2, so names match without regard to case and plural. Values are converted to the type in the model (protobuf
delivers every number as a float). An input without a parameter is an error.
"""

import enum
import functools
import pkgutil
import re
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from importlib import import_module
from types import MappingProxyType
from typing import Any, Protocol, TypeVar

from botocore.model import Shape, StructureShape
from pulumi import _types

from bedplate.rehearsal import schema
from bedplate.rehearsal.schema import leaf, plain_kind
from bedplate.rehearsal.simulation import Aws
from bedplate.rehearsal.state import ResourceError, UnsupportedError
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


class Row(Protocol):
    """A row of a table with one row for each type token of the Pulumi schema."""

    @property
    def token(self) -> str:
        """The type token, such as `aws:ec2/vpc:Vpc`."""


AnyRow = TypeVar("AnyRow", bound=Row)


def find_rows(package: str, path: Iterable[str], row_type: type[AnyRow]) -> Mapping[str, AnyRow]:
    """Return the `row_type` objects at the top level of the package's modules, by token."""
    rows: dict[str, AnyRow] = {}
    for module in pkgutil.iter_modules(path, f"{package}."):
        for value in vars(import_module(module.name)).values():
            if isinstance(value, row_type) and rows.setdefault(value.token, value) is not value:
                raise AssertionError(f"{module.name} has a second row for {value.token}")
    return MappingProxyType(dict(sorted(rows.items())))


def call_parameters(
    aws: Aws,
    call: tuple[str, str],
    inputs: Props,
    *,
    apart: tuple[str, ...] = (),
    renames: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Return the parameters of `call` (service, operation) for `inputs`, without the inputs `apart`.

    `renames` maps an input, or its path, to a parameter of another name. Raises UnsupportedError for an input, at any
    depth, that the operation has no parameter for.
    """
    values = {key: value for key, value in inputs.items() if key not in apart and value is not None}
    return structure_parameters(aws.shape(*call), values, renames or {})


def structure_parameters(
    shape: StructureShape, value: object, renames: Mapping[str, str], where: str = ""
) -> dict[str, Any]:
    """Return a mapping with the members of a structure shape; a list of one block is treated as the block."""
    block = value[0] if isinstance(value, list) and len(value) == 1 else value
    if not isinstance(block, Mapping):
        raise UnsupportedError(f"{where or shape.name} must be a mapping", key=where)
    members = {}
    for key, item in block.items():
        if item is not None:
            path = f"{where}.{key}" if where else key
            member = _member(shape, renames.get(path, renames.get(key, key)), path)
            members[member] = _parameter(shape.members[member], item, renames, path)
    return members


def _member(shape: StructureShape, key: str, path: str) -> str:
    folded: dict[str, str] = {name.lower(): name for name in shape.members}
    singular = key[:-3] + "y" if key.endswith("ies") else key.removesuffix("s")
    for guess in (key, f"{key}s", f"{key}es", singular):
        if guess.lower() in folded:
            return folded[guess.lower()]
    raise UnsupportedError(f"the rehearsal does not model input {path}", key=path)


def _parameter(shape: Shape, value: object, renames: Mapping[str, str], path: str) -> Any:  # noqa: ANN401  # a JSON value
    match shape.type_name:
        case "structure":
            return structure_parameters(shape, value, renames, path)
        case "list":
            items = value if isinstance(value, list) else [value]
            return [_parameter(shape.member, item, renames, f"{path}[{n}]") for n, item in enumerate(items)]
        case "map":
            return {key: _parameter(shape.value, item, renames, path) for key, item in _pairs(value, path)}
        case "integer" | "long":
            return int(str(value)) if not isinstance(value, float) else int(value)
        case "float" | "double":
            return float(str(value))
        case "boolean":
            return value in (True, "true")
        case _:
            return value if isinstance(value, str | bytes) else str(value)


def _pairs(value: object, path: str) -> list[tuple[str, object]]:
    if not isinstance(value, Mapping):
        raise UnsupportedError(f"{path} must be a mapping", key=path)
    return list(value.items())


@dataclass(frozen=True, slots=True)
class Lookup:
    """The model of one data function: its token, its arguments, and the function that returns its result."""

    token: str
    args: frozenset[str]
    find: Callable[[Aws, Props], dict[str, Any]]
    """Return the properties of the result that are neither empty nor an argument."""


@functools.cache
def empty_result(token: str) -> Mapping[str, Any]:
    """Return all properties of a data function's result, each with the empty value of its type."""
    module, _, name = token.removeprefix("aws:").rpartition(":")[0].partition("/")
    file = re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", name).lower()
    sdk_module = leaf("pulumi_aws" if module == "index" else f"pulumi_aws.{module}", file)
    result = getattr(sdk_module, f"{name[0].upper()}{name[1:]}Result")
    empties = {bool: False, list: [], dict: {}, int: 0, float: 0}
    types = _types.output_type_types(result)
    return {key: empties.get(plain_kind(_types.unwrap_type(tp)), "") for key, tp in types.items()}


def filters(args: Props, names: Mapping[str, str] | None = None) -> list[dict[str, Any]]:
    """Return the EC2 filters for `filters`, `tags` and the arguments that `names` maps to a filter."""
    explicit = [{"Name": block["name"], "Values": block["values"]} for block in args.get("filters") or []]
    tags = [{"Name": f"tag:{key}", "Values": [value]} for key, value in (args.get("tags") or {}).items()]
    values = {name: args[key] for key, name in (names or {}).items() if args.get(key) not in (None, "")}
    by_argument = [{"Name": name, "Values": [_filter_text(value)]} for name, value in values.items()]
    return [*explicit, *tags, *by_argument]


def _filter_text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def only_one(noun: str, matches: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the only match; raise ResourceError for none or several, with the provider's messages."""
    if not matches:
        raise ResourceError("NotFound", f"no matching {noun} found")
    if len(matches) > 1:
        raise ResourceError(
            "TooManyResults", f"multiple {noun}s matched; use additional constraints to reduce them to one"
        )
    return matches[0]


def tag_map(tags: list[dict[str, str]] | None) -> dict[str, str]:
    """Return AWS's list of tags as a mapping."""
    return {tag["Key"]: tag["Value"] for tag in tags or []}


def picked(reply: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Return the properties in a reply of AWS, by their names in the schema; `names` is schema name -> AWS name."""
    return {key: reply[name] for key, name in names.items() if reply.get(name) is not None}
