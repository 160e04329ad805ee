"""Limits of AWS on names and numbers, as rows: what moto lets pass and AWS refuses."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from bedplate.rehearsal.kind import Complaint, Props
from bedplate.rehearsal.unknown import is_known


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
