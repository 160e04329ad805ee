"""The SDK's private names that the rehearsal stands on: an upgrade of pulumi that moves one fails here first."""

import inspect

import pulumi
import pulumi_aws
import pytest
from pulumi import _types
from pulumi.runtime import _callbacks, mocks, rpc, settings, stack
from pulumi.runtime.proto import alias_pb2, callback_pb2, resource_pb2

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
