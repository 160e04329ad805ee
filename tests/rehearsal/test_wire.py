"""Values between the SDK's form and plain ones."""

from typing import Any

import pytest
from google.protobuf import json_format
from google.protobuf.struct_pb2 import Struct
from pulumi.runtime import rpc

from bedplate.rehearsal.unknown import UNKNOWN, holds_unknown, is_known
from bedplate.rehearsal.wire import (
    Reference,
    Secret,
    from_struct,
    holds_secret,
    masked,
    reveal,
    secret_texts,
    to_struct,
)

VALUES: dict[str, Any] = {
    "text": "a",
    "whole number": 3,
    "fraction": 0.5,
    "truth": True,
    "nothing": None,
    "list": ["a", 1, None],
    "mapping": {"a": {"b": [1]}},
    "secret": Secret({"a": "b"}),
    "unknown": UNKNOWN,
    "unknown secret": Secret(UNKNOWN),
    "nested secret": {"a": [Secret("b")]},
    "reference": Reference("urn:pulumi:s::p::t:t:T::n", "id-1"),
}


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES.keys())
def test_a_value_survives_the_wire(value: object) -> None:
    """What is sent is what arrives, at any depth."""
    assert from_struct(to_struct({"key": value})) == {"key": value}


def test_whole_numbers_arrive_whole() -> None:
    """The wire knows only floats; AWS's calls want integers."""
    struct = Struct()
    json_format.ParseDict({"n": 3.0}, struct)

    (number,) = from_struct(struct).values()

    assert isinstance(number, int)


def test_the_marks_are_the_sdks() -> None:
    """A secret goes out as the SDK reads one."""
    sent = json_format.MessageToDict(to_struct({"key": Secret("v")}))

    assert rpc.is_rpc_secret(sent["key"])
    assert rpc.unwrap_rpc_secret(sent["key"]) == "v"


def test_a_reference_to_something_unmade_has_no_id() -> None:
    """In a preview the id inside a reference is unknown, and no text pretends to be it."""
    reference = from_struct(to_struct({"key": Reference("urn", rpc.UNKNOWN)}))["key"]

    assert reference == Reference("urn", "")


def test_what_cannot_be_sent_is_a_defect() -> None:
    """A value of another type is a fault of ours, never a text that looks like one."""
    with pytest.raises(TypeError, match="object"):
        to_struct({"key": object()})


def test_opening_reaches_every_depth() -> None:
    """Who must use a value gets it without marks."""
    assert reveal({"a": [Secret({"b": Secret(1)})]}) == {"a": [{"b": 1}]}


def test_masking_hides_secrets_and_names_the_rest() -> None:
    """A screen shows neither a secret nor a mark."""
    value = {"a": [Secret("s")], "b": UNKNOWN, "c": Reference("urn", "id"), "d": 1}

    assert masked(value) == {"a": ["[secret]"], "b": "[unknown]", "c": "urn", "d": 1}


def test_a_secret_does_not_show_in_a_message() -> None:
    """However it is printed, a secret is hidden."""
    assert "hunter2" not in f"{Secret('hunter2')} {Secret('hunter2')!r} {[Secret('hunter2')]}"


@pytest.mark.parametrize(
    ("value", "holds"), [({"a": [Secret(1)]}, True), (Secret(1), True), ({"a": [1]}, False), ("x", False)]
)
def test_a_secret_is_found_at_any_depth(value: object, *, holds: bool) -> None:
    """One secret item makes a whole value secret."""
    assert holds_secret(value) is holds


def test_the_texts_of_secrets_are_those_inside_alone() -> None:
    """Only what is secret is kept out of messages: texts and numbers, not truths or empty texts."""
    value = {"a": Secret({"k": ["x", 1, True, ""]}), "b": "open"}

    assert secret_texts(value) == {"x", "1"}


def test_unknown_is_found_at_any_depth() -> None:
    """A value is known only when all of it is."""
    assert holds_unknown({"a": [UNKNOWN]})
    assert not is_known([UNKNOWN])
    assert not is_known(None)
    assert is_known({"a": [0]})
