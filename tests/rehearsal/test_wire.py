"""Tests of values on the wire, of the set of pending tasks, and of private names of the SDK that the rehearsal uses."""

import asyncio
import inspect
from typing import Any

import pulumi
import pulumi_aws
import pytest
from google.protobuf import json_format
from google.protobuf.struct_pb2 import Struct
from pulumi import _types
from pulumi.runtime import mocks, rpc, settings, stack
from pulumi.runtime.proto import alias_pb2, resource_pb2

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
    "integer": 3,
    "fraction": 0.5,
    "boolean": True,
    "none": None,
    "list": ["a", 1, None],
    "mapping": {"a": {"b": [1]}},
    "secret": Secret({"a": "b"}),
    "unknown": UNKNOWN,
    "unknown secret": Secret(UNKNOWN),
    "nested secret": {"a": [Secret("b")]},
    "reference": Reference("urn:pulumi:s::p::t:t:T::n", "id-1"),
}


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES.keys())
def test_a_value_is_the_same_after_conversion(value: object) -> None:
    """A value converted to a struct and back is equal, at any depth."""
    assert from_struct(to_struct({"key": value})) == {"key": value}


def test_integral_numbers_become_int() -> None:
    """The wire has only floats, but parameters of AWS calls must be integers."""
    struct = Struct()
    json_format.ParseDict({"n": 3.0}, struct)

    (number,) = from_struct(struct).values()

    assert isinstance(number, int)


def test_the_sdk_reads_our_secrets() -> None:
    """The SDK recognizes a secret in a converted value."""
    sent = json_format.MessageToDict(to_struct({"key": Secret("v")}))

    assert rpc.is_rpc_secret(sent["key"])
    assert rpc.unwrap_rpc_secret(sent["key"]) == "v"


def test_a_reference_with_unknown_id_has_no_id() -> None:
    """In a preview, the unknown id inside a reference is not taken for a real one."""
    reference = from_struct(to_struct({"key": Reference("urn", rpc.UNKNOWN)}))["key"]

    assert reference == Reference("urn", "")


def test_a_value_of_another_type_is_an_error() -> None:
    """A value of another type is an internal error and not converted to text."""
    with pytest.raises(TypeError, match="object"):
        to_struct({"key": object()})


def test_reveal_returns_nested_secrets() -> None:
    """Secrets at any depth are returned in clear text."""
    assert reveal({"a": [Secret({"b": Secret(1)})]}) == {"a": [{"b": 1}]}


def test_masked_values_can_be_displayed() -> None:
    """Secrets are hidden; unknown values and references become text."""
    value = {"a": [Secret("s")], "b": UNKNOWN, "c": Reference("urn", "id"), "d": 1}

    assert masked(value) == {"a": ["[secret]"], "b": "[unknown]", "c": "urn", "d": 1}


def test_a_secret_has_no_clear_text_form() -> None:
    """A secret is hidden in str, repr and containers."""
    assert "hunter2" not in f"{Secret('hunter2')} {Secret('hunter2')!r} {[Secret('hunter2')]}"


@pytest.mark.parametrize(
    ("value", "holds"), [({"a": [Secret(1)]}, True), (Secret(1), True), ({"a": [1]}, False), ("x", False)]
)
def test_a_secret_is_found_at_any_depth(value: object, *, holds: bool) -> None:
    """A value with one secret item is secret."""
    assert holds_secret(value) is holds


def test_secret_texts_are_strings_and_numbers_in_secrets() -> None:
    """Booleans, empty strings and values outside secrets do not count."""
    value = {"a": Secret({"k": ["x", 1, True, ""]}), "b": "open"}

    assert secret_texts(value) == {"x", "1"}


def test_unknown_is_found_at_any_depth() -> None:
    """A value is known only if all its parts are."""
    assert holds_unknown({"a": [UNKNOWN]})
    assert not is_known([UNKNOWN])
    assert not is_known(None)
    assert is_known({"a": [0]})


async def _after(turns: int, finished: list[int]) -> None:
    for _ in range(turns):
        await asyncio.sleep(0)
    finished.append(turns)


async def _failing() -> None:
    await asyncio.sleep(0)
    raise ValueError("the first exception")


def test_one_task_waits_for_all() -> None:
    """The task ends when the last task of the set ends."""
    finished: list[int] = []

    async def main() -> None:
        pending = PendingTasks(asyncio.ensure_future(_after(turns, finished)) for turns in (3, 1, 2))
        (task,) = list(pending)
        await task

    asyncio.run(main())

    assert finished == [1, 2, 3]


def test_the_first_failure_is_raised() -> None:
    """The task raises the first exception while other tasks still run."""

    async def main() -> None:
        pending = PendingTasks((asyncio.ensure_future(_after(50, [])), asyncio.ensure_future(_failing())))
        (task,) = list(pending)
        await task

    with pytest.raises(ValueError, match="the first exception"):
        asyncio.run(main())


def test_an_empty_set_yields_no_task() -> None:
    """Nothing is pending in an empty set."""
    assert list(PendingTasks()) == []


ACCOUNT = "111122223333"


def test_a_second_simulation_in_a_thread_is_refused() -> None:
    """A second simulation in the same thread raises an error instead of a deadlock."""
    with running(ACCOUNT), pytest.raises(RuntimeError, match="already runs a simulation"), running(ACCOUNT):
        pass


def test_a_simulation_can_start_after_a_failed_one() -> None:
    """An exception in a simulation releases the lock."""
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
def test_the_sdk_has_the_marks_of_the_engine(module: object, name: str, value: str) -> None:
    """`wire` reads and writes these marks."""
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
def test_the_sdk_has_the_functions_that_schema_calls(name: str) -> None:
    """`schema` reads the provider's schema with these functions."""
    assert callable(getattr(_types, name))


def test_the_sdk_has_a_table_of_resource_modules() -> None:
    """`schema` finds the class of a type in this table."""
    assert 'resource_modules="""' in inspect.getsource(pulumi_aws)


def test_the_sdk_has_the_settings_that_evaluate_replaces() -> None:
    """`monitor` resets the root stack and two settings of the process, and calls `run_in_stack`."""
    assert callable(settings.ROOT.set)
    assert settings.SETTINGS.outputs is not None
    assert settings.SETTINGS.lock is not None
    assert inspect.iscoroutinefunction(stack.run_in_stack)


def test_set_mocks_accepts_a_monitor() -> None:
    """`set_mocks` accepts our monitor, which overrides these methods."""
    assert {"monitor", "project", "stack", "preview", "organization"} <= inspect.signature(
        mocks.set_mocks
    ).parameters.keys()
    for name in ("RegisterResource", "RegisterResourceOutputs", "ReadResource", "Invoke", "RegisterStackTransform"):
        assert callable(getattr(mocks.MockMonitor, name))


FIELDS = {
    resource_pb2.RegisterResourceRequest: (
        "importId replace_with replacement_trigger state_migrations hooks remote transforms"
    ),
    resource_pb2.RegisterResourceResponse: "urn id object result",
    alias_pb2.Alias.Spec: "name type stack project parentUrn noParent",
}


@pytest.mark.parametrize(("message", "fields"), FIELDS.items(), ids=lambda message: getattr(message, "__name__", ""))
def test_messages_have_the_fields_that_we_read(message: type, fields: str) -> None:
    """A field that an upgrade renames would be read as empty, and an option would be lost."""
    assert set(fields.split()) <= {field.name for field in message.DESCRIPTOR.fields}  # type: ignore[attr-defined]


# The resource options that the rehearsal models, refuses or ignores on purpose.
KNOWN = {
    "additional_secret_outputs", "aliases", "custom_timeouts", "delete_before_replace", "deleted_with", "depends_on",
    "env_var_mappings", "hide_diffs", "hooks", "id", "ignore_changes", "import_", "parent", "plugin_download_url",
    "protect", "provider", "providers", "replace_on_changes", "replace_with", "replacement_trigger",
    "retain_on_delete", "state_migrations", "transformations", "transforms", "urn", "version",
}  # fmt: skip


def test_all_resource_options_are_known() -> None:
    """An option that an upgrade adds must be modelled or refused."""
    options = set(inspect.signature(pulumi.ResourceOptions).parameters)

    assert options <= KNOWN
