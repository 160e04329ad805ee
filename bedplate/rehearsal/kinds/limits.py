"""Checks that every kind uses: limits of names, numbers, words and lists, tags, and names.

moto accepts values that AWS refuses. Functions `check_*` yield these errors before anything is created, in a preview
too. Functions `require_*`, in the modules of the kinds, raise the API error of AWS when a call is made.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from ipaddress import IPv4Address
from typing import Protocol
from uuid import uuid4

from bedplate.rehearsal.kind import InvalidInput, Props
from bedplate.rehearsal.simulation import Aws
from bedplate.rehearsal.state import ResourceError
from bedplate.rehearsal.wire import is_known


class Limit(Protocol):
    """The values that an input may have."""

    def error(self, value: object) -> str:
        """Return why a value is not allowed, or an empty string."""


@dataclass(frozen=True, slots=True)
class Text(Limit):
    """A string between two lengths that matches a pattern; `plain` describes the pattern in messages."""

    shortest: int
    longest: int
    pattern: str = r"[\s\S]*"
    plain: str = "any characters"

    def error(self, value: object) -> str:
        """Return why a value is not allowed, or an empty string."""
        if not isinstance(value, str):
            return f"must be a string, not {value!r}"
        if not self.shortest <= len(value) <= self.longest:
            return f"{value[:40]!r} has {len(value)} characters, {self.shortest} to {self.longest} are allowed"
        return "" if re.fullmatch(self.pattern, value) else f"{value!r} may contain only {self.plain}"


@dataclass(frozen=True, slots=True)
class Number(Limit):
    """A number between two bounds, or one of a few others."""

    least: float
    most: float
    besides: tuple[float, ...] = ()

    def error(self, value: object) -> str:
        """Return why a value is not allowed, or an empty string."""
        if not isinstance(value, int | float):
            return f"must be a number, not {value!r}"
        fits = self.least <= value <= self.most or value in self.besides
        return "" if fits else f"must be between {self.least:g} and {self.most:g}, not {value}"


@dataclass(frozen=True, slots=True)
class Choice(Limit):
    """One word of a list."""

    words: tuple[str, ...]

    def error(self, value: object) -> str:
        """Return why a value is not allowed, or an empty string."""
        return "" if value in self.words else f"must be one of {', '.join(map(repr, self.words))}, not {value!r}"


@dataclass(frozen=True, slots=True)
class Items(Limit):
    """A list with at most so many items; `noun` names them in messages."""

    most: int
    noun: str

    def error(self, value: object) -> str:
        """Return why a value is not allowed, or an empty string."""
        number = len(value) if isinstance(value, list) else 0
        return "" if number <= self.most else f"has {number} {self.noun}, at most {self.most} are allowed"


@dataclass(frozen=True, slots=True)
class Absent(Limit):
    """No value: an input inside a block, which the rehearsal does not model."""

    def error(self, value: object) -> str:  # noqa: ARG002  # every value is refused
        """Return why a value is not allowed."""
        return "is not modelled by the rehearsal"


def check_limits(inputs: Props, limits: Mapping[str, Limit]) -> Iterator[InvalidInput]:
    """Yield an error for each known input whose value its limit does not allow."""
    for key, limit in limits.items():
        value = inputs.get(key)
        if is_known(value) and (reason := limit.error(value)):
            yield InvalidInput(key, reason)


def check_nested(inputs: Props, path: str, limits: Mapping[str, Limit]) -> Iterator[InvalidInput]:
    """Yield the same for the block at a dotted path; where the path leads through lists, for each block in them."""
    for block in _blocks(inputs, path.split(".")):
        yield from (InvalidInput(f"{path}.{error.key}", error.reason) for error in check_limits(block, limits))


def _blocks(value: object, path: list[str]) -> Iterator[Props]:
    if isinstance(value, list):
        for item in value:
            yield from _blocks(item, path)
    elif isinstance(value, Mapping):
        if path:
            yield from _blocks(value.get(path[0]), path[1:])
        else:
            yield value


def check_exclusive(inputs: Props, first: str, second: str) -> Iterator[InvalidInput]:
    """Yield an error when both of two inputs are set that exclude each other."""
    if inputs.get(first) is not None and inputs.get(second) is not None:
        yield InvalidInput(first, f"conflicts with {second}")


def check_either(inputs: Props, first: str, second: str) -> Iterator[InvalidInput]:
    """Yield an error when neither of two inputs is set, one of which is required."""
    if inputs.get(first) is None and inputs.get(second) is None:
        yield InvalidInput(first, f"is required unless {second} is set")


def check_required(inputs: Props, keys: Iterable[str]) -> Iterator[InvalidInput]:
    """Yield an error for each missing input that AWS requires unless others are set, which the kind does not model."""
    for key in keys:
        if inputs.get(key) is None:
            yield InvalidInput(key, "is required: the rehearsal models no other input in its place")


def checks(
    limits: Mapping[str, Limit], *more: Callable[[Props], Iterator[InvalidInput]]
) -> Callable[[Aws, Props], Iterator[InvalidInput]]:
    """Return the checks of a kind that needs no other: limits, then each of `more`, for `ResourceKind.complaints`."""

    def complaints(_aws: Aws, inputs: Props) -> Iterator[InvalidInput]:
        yield from check_limits(inputs, limits)
        for check in more:
            yield from check(inputs)

    return complaints


_MAX_TAGS, _MAX_KEY_LENGTH, _MAX_VALUE_LENGTH = 50, 128, 256


def check_tags(inputs: Props, key: str = "tags") -> Iterator[InvalidInput]:
    """Yield an error for each invalid tag of an input: a map, or a list of blocks with `key` and `value`."""
    tags = _as_map(inputs.get(key))
    if len(tags) > _MAX_TAGS:
        yield InvalidInput(key, f"has {len(tags)} tags, at most {_MAX_TAGS} are allowed")
    for name, value in tags.items():
        for reason in _tag_errors(name, value):
            yield InvalidInput(f"{key}.{name[:_MAX_KEY_LENGTH]}", reason)


def _as_map(tags: object) -> Mapping[str, object]:
    if isinstance(tags, Mapping):
        return tags
    blocks = tags if isinstance(tags, list) else []
    return {block["key"]: block.get("value") for block in blocks if is_known(block.get("key"))}


def _tag_errors(name: str, value: object) -> Iterator[str]:
    if not 1 <= len(name) <= _MAX_KEY_LENGTH:
        yield f"has a key of {len(name)} characters, 1 to {_MAX_KEY_LENGTH} are allowed"
    if name.lower().startswith("aws:"):
        yield "must not begin with aws:, which AWS reserves"
    if isinstance(value, str) and len(value) > _MAX_VALUE_LENGTH:
        yield f"has a value of {len(value)} characters, at most {_MAX_VALUE_LENGTH} are allowed"


def tag_pairs(tags: Mapping[str, str] | None, names: tuple[str, str] = ("Key", "Value")) -> list[dict[str, str]]:
    """Return tags as a list of pairs, with the names that a service uses for key and value."""
    return [dict(zip(names, pair, strict=True)) for pair in sorted((tags or {}).items())]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tagger:
    """How one service changes the tags of a resource: its two calls and the names of their parameters."""

    service: str
    add: str = "tag_resource"
    remove: str = "untag_resource"
    ident: str
    names: tuple[str, str] = ("Key", "Value")
    fixed: Mapping[str, str] = field(default_factory=dict)

    def retag(self, aws: Aws, ident: str, old: Props, new: Props) -> None:
        """Change the tags of a resource from the old inputs to the new ones."""
        before, after = old.get("tags") or {}, new.get("tags") or {}
        target = {**self.fixed, self.ident: ident}
        if removed := sorted(before.keys() - after.keys()):
            aws.call(self.service, self.remove, **target, TagKeys=removed)
        if added := dict(after.items() - before.items()):
            aws.call(self.service, self.add, **target, Tags=tag_pairs(added, self.names))


def is_ipv4_address(text: str) -> bool:
    """Tell whether a text is an IPv4 address."""
    try:
        IPv4Address(text)
    except ValueError:
        return False
    return True


def new_id(prefix: str) -> str:
    """Return a new id in the form of EC2: a prefix and 17 hex digits."""
    return f"{prefix}-{uuid4().hex[:17]}"


@contextmanager
def rollback(undo: Callable[[], object]) -> Iterator[None]:
    """Run the block; when a call in it is refused, call `undo` and raise the refusal again."""
    try:
        yield
    except ResourceError:
        undo()
        raise
