"""Values between the SDK's form and plain ones."""

import asyncio
import inspect
from typing import Any

import pulumi
import pulumi_aws
import pytest
from google.protobuf import json_format
from google.protobuf.struct_pb2 import Struct
from pulumi import _types
from pulumi.runtime import _callbacks, mocks, rpc, settings, stack
from pulumi.runtime.proto import alias_pb2, callback_pb2, resource_pb2

from bedplate.rehearsal.monitor import PendingTasks
from bedplate.rehearsal.simulation import running
from bedplate.rehearsal.wire import (
    UNKNOWN,
    Reference,
    Secret,
    from_struct,
    holds_secret,
    holds_unknown,
    is_known,
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


async def _after(turns: int, told: list[int]) -> None:
    for _ in range(turns):
        await asyncio.sleep(0)
    told.append(turns)


async def _failing() -> None:
    await asyncio.sleep(0)
    raise ValueError("the first to fail")


def test_one_task_stands_for_all() -> None:
    """It ends when the last of them has ended."""
    told: list[int] = []

    async def main() -> None:
        pending = PendingTasks(asyncio.ensure_future(_after(turns, told)) for turns in (3, 1, 2))
        (one,) = list(pending)
        await one

    asyncio.run(main())

    assert told == [1, 2, 3]


def test_the_first_failure_is_raised() -> None:
    """Whatever else is still under way."""

    async def main() -> None:
        pending = PendingTasks((asyncio.ensure_future(_after(50, [])), asyncio.ensure_future(_failing())))
        (one,) = list(pending)
        await one

    with pytest.raises(ValueError, match="the first to fail"):
        asyncio.run(main())


def test_nothing_is_waited_for_where_nothing_is_pending() -> None:
    """An empty set yields no task."""
    assert list(PendingTasks()) == []


ACCOUNT = "111122223333"


def test_a_thread_does_not_wait_for_itself() -> None:
    """A second simulation beside one's own is a mistake that is told, and no silence without an end."""
    with running(ACCOUNT), pytest.raises(RuntimeError, match="would wait for itself"), running(ACCOUNT):
        pass


def test_the_next_begins_when_the_one_before_has_ended() -> None:
    """Also where that one ended by an error."""
    with pytest.raises(KeyError), running(ACCOUNT):
        raise KeyError

    with running(ACCOUNT) as simulation:
        assert simulation.account == ACCOUNT


PRIVATE = [
    (rpc, "_special_sig_key", "4dabf18193072939515e22adb298388d"),
    (rpc, "_special_secret_sig", "1b47061264138c4ac30d75fd1eb44270"),
    (rpc, "_special_resource_sig", "5cf8f73096256a8f31e491e813e4eb8e"),
    (rpc, "UNKNOWN", "04da6b54-80e4-46f7-96ec-b56ff0331ba9"),
]


@pytest.mark.parametrize(("module", "name", "value"), PRIVATE)
def test_the_marks_of_the_wire_are_the_engines(module: object, name: str, value: str) -> None:
    """`wire` and `unknown` read and write these marks."""
    assert getattr(module, name) == value


@pytest.mark.parametrize(
    "name",
    [
        "input_type_types",
        "input_type_py_to_pulumi_names",
        "is_input_type",
        "is_output_type",
        "resource_types",
        "unwrap_type",
    ],
)
def test_the_sdks_types_can_be_asked(name: str) -> None:
    """`schema` reads the provider's schema by these functions."""
    assert callable(getattr(_types, name))


def test_the_package_registers_its_types_in_a_table() -> None:
    """`schema` finds a type's class in the text that the package hands to the SDK."""
    assert 'resource_modules="""' in inspect.getsource(pulumi_aws)


def test_callbacks_are_kept_by_token_and_loop() -> None:
    """`transforms` calls a program's functions in the SDK's list of callback servers."""
    kept = inspect.get_annotations(_callbacks._CallbackServicer)  # noqa: SLF001  # the name under test

    assert {"_servicers", "_callbacks", "_loop"} <= kept.keys()


def test_a_run_can_be_settled() -> None:
    """`evaluation` clears the root and what the SDK leaves for the whole process, and runs a body as a stack."""
    assert callable(settings.ROOT.set)
    assert settings.SETTINGS.outputs is not None
    assert settings.SETTINGS.lock is not None
    assert inspect.iscoroutinefunction(stack.run_in_stack)


def test_a_monitor_can_be_given() -> None:
    """`set_mocks` takes a monitor of our own, with the methods that ours overrides."""
    assert {"monitor", "project", "stack", "preview", "organization"} <= inspect.signature(
        mocks.set_mocks
    ).parameters.keys()
    for name in ("RegisterResource", "RegisterResourceOutputs", "ReadResource", "Invoke", "RegisterStackTransform"):
        assert callable(getattr(mocks.MockMonitor, name))


FIELDS = {
    resource_pb2.RegisterResourceRequest: "importId replace_with replacement_trigger state_migrations hooks remote",
    resource_pb2.RegisterResourceResponse: "urn id object result",
    resource_pb2.TransformResourceOptions: "protect retain_on_delete provider version deleted_with depends_on aliases",
    alias_pb2.Alias.Spec: "name type stack project parentUrn noParent",
    callback_pb2.Callback: "token",
}


@pytest.mark.parametrize(("message", "fields"), FIELDS.items(), ids=lambda one: getattr(one, "__name__", ""))
def test_messages_have_the_fields_that_are_read(message: type, fields: str) -> None:
    """A field that an upgrade renames would be read as empty, and an option silently lost."""
    assert set(fields.split()) <= {field.name for field in message.DESCRIPTOR.fields}  # type: ignore[attr-defined]


# The options of a resource that the rehearsal models or refuses; one that is new to both would be lost in silence.
KNOWN = {
    "additional_secret_outputs", "aliases", "custom_timeouts", "delete_before_replace", "deleted_with", "depends_on",
    "env_var_mappings", "hide_diffs", "hooks", "id", "ignore_changes", "import_", "parent", "plugin_download_url",
    "protect", "provider", "providers", "replace_on_changes", "replace_with", "replacement_trigger",
    "retain_on_delete", "state_migrations", "transformations", "transforms", "urn", "version",
}  # fmt: skip


def test_no_option_is_new() -> None:
    """An upgrade that brings a resource option must say what the rehearsal does with it."""
    options = set(inspect.signature(pulumi.ResourceOptions).parameters)

    assert options <= KNOWN
