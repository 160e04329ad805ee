"""Paths into properties, as resource options name them."""

from typing import Any

import pytest

from bedplate.rehearsal.property_path import Parts, matches, parse, restored

PATHS: dict[str, Parts] = {
    "tags": ("tags",),
    "tags.owner": ("tags", "owner"),
    "routes[0].cidrBlock": ("routes", 0, "cidrBlock"),
    'tags["a b.c"]': ("tags", "a b.c"),
    "routes[*].cidrBlock": ("routes", "*", "cidrBlock"),
    "*": ("*",),
}


@pytest.mark.parametrize(("path", "parts"), PATHS.items())
def test_a_path_has_names_and_positions(path: str, parts: Parts) -> None:
    """Dots, quotes, positions and stars are read as Pulumi reads them."""
    assert parse(path) == parts


@pytest.mark.parametrize(
    ("pattern", "path", "hit"),
    [
        ("tags", "tags.owner", True),
        ("tags.owner", "tags", False),
        ("tags.*", "tags.owner", True),
        ("routes[*].cidrBlock", "routes[3].cidrBlock", True),
        ("routes[0]", "routes[1]", False),
        ("*", "anything", True),
    ],
)
def test_a_pattern_matches_what_lies_at_or_below_it(pattern: str, path: str, *, hit: bool) -> None:
    """A pattern names a value and all inside it."""
    assert matches(parse(pattern), parse(path)) is hit


RESTORED: dict[str, tuple[str, Any, Any, Any]] = {
    "changed": ("a", {"a": 2, "b": 2}, {"a": 1, "b": 1}, {"a": 1, "b": 2}),
    "added": ("a", {"a": 2}, {}, {}),
    "removed": ("a", {}, {"a": 1}, {"a": 1}),
    "nested": ("a.x", {"a": {"x": 2, "y": 2}}, {"a": {"x": 1}}, {"a": {"x": 1, "y": 2}}),
    "every key": ("a.*", {"a": {"x": 2, "y": 2}}, {"a": {"x": 1}}, {"a": {"x": 1}}),
    "item": ("a[0]", {"a": [2, 2]}, {"a": [1, 1]}, {"a": [1, 2]}),
    "every item": ("a[*].x", {"a": [{"x": 2}, {"x": 2}]}, {"a": [{"x": 1}]}, {"a": [{"x": 1}, {"x": 2}]}),
    "not there": ("a.x", {}, {"a": {"x": 1}}, {}),
    "not a mapping": ("a.x", {"a": 1}, {"a": {"x": 1}}, {"a": 1}),
}


@pytest.mark.parametrize(("path", "new", "old", "wanted"), RESTORED.values(), ids=RESTORED.keys())
def test_an_ignored_value_is_as_it_was(path: str, new: object, old: object, wanted: object) -> None:
    """What a path names is put back, or taken away where it was not; all else stays new."""
    assert restored(new, old, parse(path)) == wanted
