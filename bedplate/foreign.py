"""Read JSON that machines, buckets and people have written: bounded in size, depth and numbers.

Whoever can log in to a machine can write any text in its name, so a reader of many machines must survive each of them.
"""

import json
from math import isfinite
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from pydantic import TypeAdapter

LARGEST, LARGE = 64 * 1024, 64 * 1024 * 1024
"""Bytes of a document; and of one that describes a whole fleet, or has the packages of a machine."""
_DEPTH, _MAX_DIGITS = 64, 20
EXACT, WORD = 1 << 53, 1 << 64
"""The largest integer by default, which a float has exactly; and that of 64 bits, such as the ids of etcd."""

T = TypeVar("T")


def parse_json(text: str | bytes, largest: int = LARGEST, *, largest_int: int = EXACT) -> Any:  # noqa: ANN401  JSON
    """Return the value of a JSON text of at most `largest` bytes, with integers of at most `largest_int`.

    Raises ValueError for an invalid or too large text, a value nested too deeply, a number that is infinite or huge, a
    key that is there twice, and characters that UTF-8 cannot encode.
    """
    if len(text) > largest:
        raise ValueError(f"larger than {largest:,} bytes")
    try:
        document = json.loads(
            text,
            object_pairs_hook=_object,
            parse_int=lambda digits: _int(digits, largest_int),
            parse_float=_float,
            parse_constant=_float,
        )
    except RecursionError:
        raise ValueError("nested too deeply") from None
    _check(document, _DEPTH)
    return document


def parse_as(schema: "TypeAdapter[T]", text: str | bytes, largest: int = LARGEST) -> T:
    """Return the value of a JSON text that has exactly the types of a schema. Raises ValueError."""
    parse_json(text, largest)
    return schema.validate_json(text, strict=True)


def one_line(text: str) -> str:
    """Return a text of somebody else without line ends and other characters that control a terminal."""
    return "".join(char if char.isprintable() else "?" for char in text)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) < len(pairs):
        raise ValueError("duplicate key")
    return table


def _int(digits: str, largest: int) -> int:
    if len(digits) > _MAX_DIGITS or abs(int(digits)) > largest:
        raise ValueError("number too large")
    return int(digits)


def _float(digits: str) -> float:
    number = float(digits)
    if not isfinite(number):
        raise ValueError("number is not finite")
    return number


def _check(value: object, depth: int) -> None:
    if isinstance(value, str):
        value.encode()
    elif isinstance(value, dict | list):
        if not depth:
            raise ValueError("nested too deeply")
        for item in (*value, *value.values()) if isinstance(value, dict) else value:
            _check(item, depth - 1)
