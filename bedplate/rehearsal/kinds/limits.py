"""Limits of AWS on names and numbers, as rows: what moto lets pass and AWS refuses."""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count
from typing import Any, Protocol
from uuid import uuid4

from bedplate.rehearsal.kind import Complaint, Props
from bedplate.rehearsal.simulation import Aws
from bedplate.rehearsal.state import Refusal
from bedplate.rehearsal.wire import is_known


class Limit(Protocol):
    """What the value of one input may be."""

    def complaint(self, value: object) -> str:
        """Return what is wrong with a value, or nothing."""


@dataclass(frozen=True, slots=True)
class Text(Limit):
    """What a string may be: between two lengths, and of a pattern that all of it matches."""

    shortest: int
    longest: int
    pattern: str = r"[\s\S]*"
    plain: str = "any characters"

    def complaint(self, value: object) -> str:
        """Return what is wrong with a value, or nothing."""
        if not isinstance(value, str):
            return f"{value!r} is no text"
        if not self.shortest <= len(value) <= self.longest:
            return f"{value[:40]!r} has {len(value)} characters, not {self.shortest} to {self.longest}"
        return "" if re.fullmatch(self.pattern, value) else f"{value!r} may hold only {self.plain}"


@dataclass(frozen=True, slots=True)
class Number(Limit):
    """What a number may be: between two bounds, or one of a few besides."""

    least: float
    most: float
    besides: tuple[float, ...] = ()

    def complaint(self, value: object) -> str:
        """Return what is wrong with a value, or nothing."""
        if not isinstance(value, int | float):
            return f"{value!r} is no number"
        fits = self.least <= value <= self.most or value in self.besides
        return "" if fits else f"expected a number between {self.least} and {self.most}, got {value}"


@dataclass(frozen=True, slots=True)
class Choice(Limit):
    """What a word may be: one of a list, as the provider's own check says it."""

    words: tuple[str, ...]

    def complaint(self, value: object) -> str:
        """Return what is wrong with a value, or nothing."""
        return "" if value in self.words else f"expected one of {list(self.words)}, got {value!r}"


def beyond(inputs: Props, limits: Mapping[str, Limit]) -> Iterator[Complaint]:
    """Yield a complaint for each known input that is beyond its limit."""
    for key, limit in limits.items():
        value = inputs.get(key)
        if is_known(value) and (reason := limit.complaint(value)):
            yield Complaint(key, reason)


def inside(inputs: Props, path: str, limits: Mapping[str, Limit]) -> Iterator[Complaint]:
    """Yield the same for the block, or for each block of the lists, at a dotted path."""
    for block in _blocks(inputs, path.split(".")):
        yield from (Complaint(f"{path}.{found.key}", found.reason) for found in beyond(block, limits))


def _blocks(value: object, path: list[str]) -> Iterator[Props]:
    if isinstance(value, list):
        for item in value:
            yield from _blocks(item, path)
    elif isinstance(value, Mapping):
        if path:
            yield from _blocks(value.get(path[0]), path[1:])
        else:
            yield value


def together(inputs: Props, first: str, second: str) -> Iterator[Complaint]:
    """Yield a complaint when both of two inputs are given that exclude each other."""
    if inputs.get(first) is not None and inputs.get(second) is not None:
        yield Complaint(first, f"conflicts with {second}")


_MOST, _LONGEST_KEY, _LONGEST_VALUE = 50, 128, 256


def tag_complaints(inputs: Props, key: str = "tags") -> Iterator[Complaint]:
    """Yield what AWS refuses of the tags under an input: a map, or a list of blocks of `key` and `value`."""
    tags = _as_map(inputs.get(key))
    if len(tags) > _MOST:
        yield Complaint(key, f"{len(tags)} tags: a resource has at most {_MOST}")
    for name, value in tags.items():
        for reason in _faults(name, value):
            yield Complaint(f"{key}.{name[:_LONGEST_KEY]}", reason)


def _as_map(tags: object) -> Mapping[str, object]:
    if isinstance(tags, Mapping):
        return tags
    blocks = tags if isinstance(tags, list) else []
    return {block["key"]: block.get("value") for block in blocks if is_known(block.get("key"))}


def _faults(name: str, value: object) -> Iterator[str]:
    if not 1 <= len(name) <= _LONGEST_KEY:
        yield f"a tag's key has 1 to {_LONGEST_KEY} characters, this one has {len(name)}"
    if name.lower().startswith("aws:"):
        yield "tags whose key begins with aws: are AWS's own"
    if isinstance(value, str) and len(value) > _LONGEST_VALUE:
        yield f"a tag's value has at most {_LONGEST_VALUE} characters, this one has {len(value)}"


def tag_pairs(tags: Mapping[str, str] | None, names: tuple[str, str] = ("Key", "Value")) -> list[dict[str, str]]:
    """Return tags as AWS lists them, under the two names that a service gives to key and value."""
    return [dict(zip(names, pair, strict=True)) for pair in sorted((tags or {}).items())]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tagger:
    """How one service tags a resource that exists: its two calls and what it names their parameters."""

    service: str
    add: str = "tag_resource"
    remove: str = "untag_resource"
    ident: str
    pairs: str = "Tags"
    keys: str = "TagKeys"
    names: tuple[str, str] = ("Key", "Value")
    fixed: Mapping[str, str] = field(default_factory=dict)

    def retag(self, aws: Aws, ident: str, old: Props, new: Props) -> None:
        """Bring the tags of a resource from the old inputs' to the new ones'."""
        before, after = old.get("tags") or {}, new.get("tags") or {}
        target = {**self.fixed, self.ident: ident}
        if gone := sorted(before.keys() - after.keys()):
            aws.call(self.service, self.remove, **target, **{self.keys: gone})
        if fresh := dict(after.items() - before.items()):
            aws.call(self.service, self.add, **target, **{self.pairs: tag_pairs(fresh, self.names)})


_numbers = count(1)


def chosen_name(inputs: Props, key: str = "name") -> str:
    """Return the name under `key`, or its prefix with 26 digits, of the moment and counting up."""
    if name := inputs.get(key):
        return str(name)
    moment = datetime.now(UTC).strftime("%Y%m%d%H%M%S%f")[:18]
    return f"{inputs.get(f'{key}Prefix') or 'terraform-'}{moment}{next(_numbers):08x}"


def new_id(prefix: str) -> str:
    """Return an id as EC2 makes them: a prefix and seventeen hex digits."""
    return f"{prefix}-{uuid4().hex[:17]}"


def keep(aws: Aws, token: str, ident: str, properties: dict[str, Any]) -> None:
    """Keep the properties of a fake of this region, new or changed."""
    aws.fakes(token)[f"{aws.region}/{ident}"] = properties


def kept(aws: Aws, token: str, ident: str, code: str) -> dict[str, Any]:
    """Return the properties of a fake of this region; refuse with `code` when there is none."""
    found = aws.fakes(token).get(f"{aws.region}/{ident}")
    if found is None:
        raise Refusal(code, f"{ident} does not exist in {aws.region}")
    return found


def forget(aws: Aws, token: str, ident: str) -> None:
    """Forget a fake of this region."""
    aws.fakes(token).pop(f"{aws.region}/{ident}", None)


@contextmanager
def undoing(undo: Callable[[], object]) -> Iterator[None]:
    """Run the rest of a create; when AWS refuses it, undo what was made and pass the refusal on."""
    try:
        yield
    except Refusal:
        undo()
        raise
