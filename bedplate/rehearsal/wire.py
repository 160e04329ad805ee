"""Values on the wire between the SDK and the engine: conversion of protobuf structs to Python values and back.

Unknown values, secrets and resource references have their own classes here, and the SDK's marks on the wire. The
SDK's conversion is not used because it rebuilds resources and awaits outputs. The last part parses property paths.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeGuard, TypeVar, final

from google.protobuf.struct_pb2 import Struct, Value
from pulumi.runtime import rpc

KnownT = TypeVar("KnownT")


@final
class Unknown:
    """A value that is known only after the resource is created; `UNKNOWN` is the only instance."""

    def __repr__(self) -> str:
        return "UNKNOWN"

    def __deepcopy__(self, memo: object) -> "Unknown":
        return self


UNKNOWN: Final = Unknown()
# The SDK's mark of an unknown value.
WIRE_MARK: Final = rpc.UNKNOWN


def is_known(value: KnownT | None) -> TypeGuard[KnownT]:
    """Return whether a value is set and holds nothing unknown."""
    return value is not None and not holds_unknown(value)


def holds_unknown(value: object) -> bool:
    """Return whether a value is unknown or holds something unknown."""
    return any(leaf is UNKNOWN for leaf in _leaves(value))


def _leaves(value: object) -> Iterator[object]:
    """Yield the values in the dictionaries and lists of a value."""
    if isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _leaves(item)
    else:
        yield value


_MARK: Final = rpc._special_sig_key  # noqa: SLF001  # a test checks that the SDK has these constants
_SECRET: Final = rpc._special_secret_sig  # noqa: SLF001
_RESOURCE: Final = rpc._special_resource_sig  # noqa: SLF001
_HIDDEN: Final = "[secret]"


@dataclass(frozen=True, slots=True)
class Secret:
    """A value that must not appear in outputs, logs or errors."""

    value: Any

    def __repr__(self) -> str:
        return _HIDDEN


@dataclass(frozen=True, slots=True)
class Reference:
    """A whole resource in place of a value: `vpc_id=vpc` instead of `vpc_id=vpc.id`."""

    urn: str
    ident: str


def from_struct(struct: Struct) -> dict[str, Any]:
    """Return the values of a struct: integral numbers as int, unknown values as UNKNOWN, secrets as Secret."""
    return {key: _from_value(value) for key, value in struct.fields.items()}


def _from_value(value: Value) -> Any:  # noqa: ANN401  # any JSON value
    match value.WhichOneof("kind"):
        case "string_value":
            return UNKNOWN if value.string_value == WIRE_MARK else value.string_value
        case "number_value":
            number = value.number_value
            return int(number) if number.is_integer() else number
        case "bool_value":
            return value.bool_value
        case "list_value":
            return [_from_value(item) for item in value.list_value.values]
        case "struct_value":
            return _from_marked(from_struct(value.struct_value))
        case _:
            return None


def _from_marked(struct: dict[str, Any]) -> Any:  # noqa: ANN401  # any JSON value
    match struct.get(_MARK):
        case str(mark) if mark == _SECRET:
            return Secret(struct["value"])
        case str(mark) if mark == _RESOURCE:
            ident = struct.get("id")
            return Reference(struct["urn"], ident if isinstance(ident, str) else "")
        case _:
            return struct


def to_struct(values: dict[str, Any]) -> Struct:
    """Return the struct of values."""
    struct = Struct()
    struct.update(_to_marked(values))
    return struct


def _to_marked(value: Any) -> Any:  # noqa: ANN401  # any JSON value
    match value:
        case dict():
            return {key: _to_marked(item) for key, item in value.items()}
        case list():
            return [_to_marked(item) for item in value]
        case Secret():
            return {_MARK: _SECRET, "value": _to_marked(value.value)}
        case Reference():
            return {_MARK: _RESOURCE, "urn": value.urn, "id": value.ident}
        case None | bool() | int() | float() | str():
            return value
        case _ if value is UNKNOWN:
            return WIRE_MARK
    raise TypeError(type(value).__name__)


def reveal(value: Any) -> Any:  # noqa: ANN401  # any JSON value
    """Return a value with its secrets in clear text."""
    match value:
        case Secret():
            return reveal(value.value)
        case dict():
            return {key: reveal(item) for key, item in value.items()}
        case list():
            return [reveal(item) for item in value]
        case _:
            return value


def masked(value: Any) -> Any:  # noqa: ANN401  # any JSON value
    """Return a value for display: secrets hidden, unknown values and references as text."""
    match value:
        case Secret():
            return _HIDDEN
        case Reference():
            return value.urn
        case dict():
            return {key: masked(item) for key, item in value.items()}
        case list():
            return [masked(item) for item in value]
        case _:
            return "[unknown]" if value is UNKNOWN else value


def secret_texts(value: object) -> frozenset[str]:
    """Return the strings and numbers in the secrets of a value, to remove them from messages."""
    secrets = [reveal(leaf) for leaf in _leaves(value) if isinstance(leaf, Secret)]
    texts = (leaf for leaf in _leaves(secrets) if isinstance(leaf, str | int | float) and not isinstance(leaf, bool))
    return frozenset(str(text) for text in texts if text != "")


def holds_secret(value: object) -> bool:
    """Return whether a value is secret or holds a secret."""
    return any(isinstance(leaf, Secret) for leaf in _leaves(value))


_PART = re.compile(r'\["((?:[^"\\]|\\.)*)"\]|\[(\d+|\*)\]|([^.\[\]]+)')
Parts = tuple[str | int, ...]


def parse_path(path: str) -> Parts:
    """Return the parts of a property path: names, indexes, and "*" for every item."""
    parts = _PART.findall(path)
    return tuple(int(index) if index.isdigit() else index or quoted or plain for quoted, index, plain in parts)


def matches(pattern: Parts, path: Parts) -> bool:
    """Return whether a pattern names a path or one of its ancestors."""
    return len(pattern) <= len(path) and all(p in ("*", q) for p, q in zip(pattern, path, strict=False))


def restored(new: Any, old: Any, path: Parts) -> Any:  # noqa: ANN401  # any JSON value
    """Return `new` with the values at `path` from `old`; remove values that `old` does not have."""
    head, rest = path[0], path[1:]
    if isinstance(new, Mapping) and isinstance(old, Mapping):
        changed = dict(new)
        for key in _keys(head, new, old):
            if key not in old:
                changed.pop(key, None)
            elif not rest:
                changed[key] = old[key]
            elif key in new:
                changed[key] = restored(new[key], old[key], rest)
        return changed
    if isinstance(new, list) and isinstance(old, list):
        indexes = range(len(new)) if head == "*" else [head]
        return [
            (restored(item, old[n], rest) if rest else old[n]) if n in indexes and n < len(old) else item
            for n, item in enumerate(new)
        ]
    return new


def _keys(head: str | int, new: Mapping[str, Any], old: Mapping[str, Any]) -> Iterator[str]:
    if head == "*":
        yield from sorted({*new, *old})
    else:
        yield str(head)
