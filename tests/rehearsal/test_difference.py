"""What differs between two sets of inputs."""

from typing import Any, Never

import pytest

from bedplate.rehearsal.difference import Difference, difference
from bedplate.rehearsal.kind import Kind, replaces, updates
from bedplate.rehearsal.unknown import UNKNOWN
from bedplate.rehearsal.wire import Secret


def _never(*_: object) -> Never:
    raise AssertionError


KIND = Kind(
    token="t:t:T",  # noqa: S106  # a type, no password
    inputs=updates("size", "tags", "rules", "zones") | replaces("block"),
    computed=frozenset({"size"}),
    sets=frozenset({"zones"}),
    create=_never,
    read=_never,
    delete=_never,
)

SAME: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "equal": ({"tags": {"a": 1}}, {"tags": {"a": 1}}),
    "a set in another order": ({"zones": ["a", "b"]}, {"zones": ["b", "a"]}),
    "a set of mappings": ({"zones": [{"n": 1}, {"n": 2}]}, {"zones": [{"n": 2}, {"n": 1}]}),
    "computed and left out": ({"size": 3}, {}),
    "none and empty": ({"tags": {}}, {}),
    "no text and none": ({"block": ""}, {"block": None}),
    "now a secret": ({"block": "a"}, {"block": Secret("a")}),
}


@pytest.mark.parametrize(("old", "new"), SAME.values(), ids=SAME.keys())
def test_no_difference(old: dict[str, Any], new: dict[str, Any]) -> None:
    """What the provider takes for the same is no change."""
    assert difference(KIND, old, new) == Difference()


CHANGED: dict[str, tuple[dict[str, Any], dict[str, Any], Difference]] = {
    "nested": ({"tags": {"a": 1, "b": 1}}, {"tags": {"a": 2, "b": 1}}, Difference(("tags.a",), ("tags",))),
    "quoted": ({"tags": {}}, {"tags": {"a b": 1}}, Difference(('tags["a b"]',), ("tags",))),
    "item": ({"rules": [{"p": 1}]}, {"rules": [{"p": 2}]}, Difference(("rules[0].p",), ("rules",))),
    "longer": ({"rules": [1]}, {"rules": [1, 2]}, Difference(("rules[1]",), ("rules",))),
    "order of a list": (
        {"rules": [1, 2]},
        {"rules": [2, 1]},
        Difference(("rules[0]", "rules[1]"), ("rules",)),
    ),
    "removed": ({"tags": {"a": 1}}, {}, Difference(("tags",), ("tags",))),
    "forcing": ({"block": "a"}, {"block": "b"}, Difference(("block",), ("block",), ("block",))),
    "region": ({"region": "a"}, {"region": "b"}, Difference(("region",), ("region",), ("region",))),
    "unknown": ({"block": "a"}, {"block": UNKNOWN}, Difference(("block",), ("block",), ("block",))),
    "unknown in a set": ({"zones": ["a"]}, {"zones": [UNKNOWN]}, Difference(("zones[0]",), ("zones",))),
    "secret": ({"size": Secret(1)}, {"size": Secret(2)}, Difference(("size",), ("size",))),
    "false is not nothing": ({"size": False}, {"size": True}, Difference(("size",), ("size",))),
}


@pytest.mark.parametrize(("old", "new", "wanted"), CHANGED.values(), ids=CHANGED.keys())
def test_a_difference(old: dict[str, Any], new: dict[str, Any], wanted: Difference) -> None:
    """A change is told by path and by input, and whether it needs a new resource."""
    assert difference(KIND, old, new) == wanted


@pytest.mark.parametrize(
    ("pattern", "forced"), [("tags", ("tags",)), ("tags.a", ("tags",)), ("tags.b", ()), ("*", ("tags",))]
)
def test_a_program_can_want_a_replacement(pattern: str, forced: tuple[str, ...]) -> None:
    """`replace_on_changes` makes a change force a new resource where its path matches."""
    found = difference(KIND, {"tags": {"a": 1}}, {"tags": {"a": 2}}, (pattern,))

    assert found.replace_keys == forced
