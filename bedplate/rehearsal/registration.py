"""What a program asks for when it declares a resource, freed from the wire's form."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pulumi.runtime.proto import alias_pb2, resource_pb2

from bedplate.rehearsal.refusal import Unsupported
from bedplate.rehearsal.wire import from_struct


@dataclass(frozen=True, slots=True)
class AliasSpec:
    """An earlier identity of a resource: a URN, or what differed from today's; empty parts are today's."""

    urn: str = ""
    name: str = ""
    type: str = ""
    stack: str = ""
    project: str = ""
    parent: str = ""
    no_parent: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """One resource as the program declared it, after its transforms."""

    type: str
    name: str
    parent: str
    custom: bool
    inputs: Mapping[str, Any]
    dependencies: tuple[str, ...] = ()
    property_dependencies: Mapping[str, tuple[str, ...]]
    provider: str = ""
    version: str = ""
    protect: bool = False
    retain: bool = False
    delete_first: bool | None = None
    deleted_with: str = ""
    ignore_changes: tuple[str, ...] = ()
    replace_on_changes: tuple[str, ...] = ()
    secret_outputs: tuple[str, ...] = ()
    aliases: tuple[AliasSpec, ...] = ()


def from_request(asked: resource_pb2.RegisterResourceRequest) -> Registration:
    """Return the registration of a request; raise Unsupported for an option that the rehearsal does not model."""
    _refuse_unmodelled(asked)
    return Registration(
        type=asked.type,
        name=asked.name,
        parent=asked.parent,
        custom=asked.custom,
        inputs=from_struct(asked.object),
        dependencies=tuple(sorted(set(asked.dependencies))),
        property_dependencies={
            key: tuple(sorted(found.urns)) for key, found in sorted(asked.propertyDependencies.items())
        },
        provider=asked.provider,
        version=asked.version,
        protect=asked.protect,
        retain=asked.retainOnDelete,
        delete_first=asked.deleteBeforeReplace if asked.deleteBeforeReplaceDefined else None,
        deleted_with=asked.deletedWith,
        ignore_changes=tuple(asked.ignoreChanges),
        replace_on_changes=tuple(asked.replaceOnChanges),
        secret_outputs=tuple(asked.additionalSecretOutputs),
        aliases=tuple(_alias(alias) for alias in asked.aliases),
    )


def _refuse_unmodelled(asked: resource_pb2.RegisterResourceRequest) -> None:
    options = {
        "import_": bool(asked.importId),
        "replace_with": bool(asked.replace_with),
        "replacement_trigger": asked.HasField("replacement_trigger"),
        "state_migrations": bool(asked.state_migrations),
        "hooks": asked.HasField("hooks") and asked.hooks.ByteSize() > 0,
        "remote components": asked.remote,
    }
    for option, given in options.items():
        if given:
            raise Unsupported(f"the rehearsal does not model {option}; {asked.type} {asked.name} uses it")


def _alias(alias: alias_pb2.Alias) -> AliasSpec:
    if alias.urn:
        return AliasSpec(urn=alias.urn)
    spec = alias.spec
    return AliasSpec(
        name=spec.name,
        type=spec.type,
        stack=spec.stack,
        project=spec.project,
        parent=spec.parentUrn,
        no_parent=spec.noParent,
    )
