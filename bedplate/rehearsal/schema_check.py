"""Inputs held against the provider's schema, as the provider itself would refuse them.

What the SDK sends unchecked is found here: a nested key misspelt, text for a number, a whole resource for its id.
"""

import enum
import typing
from collections.abc import Iterator, Mapping
from typing import Any

from pulumi import _types

from bedplate.rehearsal import schema
from bedplate.rehearsal.kind import Complaint
from bedplate.rehearsal.unknown import UNKNOWN
from bedplate.rehearsal.wire import Reference, Secret

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
