"""One resource as the program registers it: its inputs and options, and its aliases.

`from_request` reads the request of the SDK, `earlier_urns` resolves aliases.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pulumi.runtime.proto import alias_pb2, resource_pb2

from bedplate.rehearsal.state import UnsupportedError, child_urn, parse_urn
from bedplate.rehearsal.wire import from_struct


@dataclass(frozen=True, slots=True)
class AliasSpec:
    """An earlier identity of a resource: its whole URN, or the parts that were different; empty parts are unchanged."""

    urn: str = ""
    name: str = ""
    type: str = ""
    stack: str = ""
    project: str = ""
    parent: str = ""
    no_parent: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """One resource as the program declared it."""

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


def from_request(request: resource_pb2.RegisterResourceRequest) -> Registration:
    """Return the registration of a request; raise UnsupportedError for an option that the rehearsal does not model."""
    _refuse_unmodelled(request)
    return Registration(
        type=request.type,
        name=request.name,
        parent=request.parent,
        custom=request.custom,
        inputs=from_struct(request.object),
        dependencies=tuple(sorted(set(request.dependencies))),
        property_dependencies={
            key: tuple(sorted(dependencies.urns)) for key, dependencies in sorted(request.propertyDependencies.items())
        },
        provider=request.provider,
        version=request.version,
        protect=request.protect,
        retain=request.retainOnDelete,
        delete_first=request.deleteBeforeReplace if request.deleteBeforeReplaceDefined else None,
        deleted_with=request.deletedWith,
        ignore_changes=tuple(request.ignoreChanges),
        replace_on_changes=tuple(request.replaceOnChanges),
        secret_outputs=tuple(request.additionalSecretOutputs),
        aliases=tuple(_alias(alias) for alias in request.aliases),
    )


def _refuse_unmodelled(request: resource_pb2.RegisterResourceRequest) -> None:
    options = {
        "import_": bool(request.importId),
        "replace_with": bool(request.replace_with),
        "replacement_trigger": request.HasField("replacement_trigger"),
        "state_migrations": bool(request.state_migrations),
        "transforms": bool(request.transforms),
        "hooks": request.HasField("hooks") and request.hooks.ByteSize() > 0,
        "remote components": request.remote,
    }
    for option, is_set in options.items():
        if is_set:
            raise UnsupportedError(f"{request.type} {request.name}: the rehearsal does not model {option}")


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


def earlier_urns(registration: Registration, urn: str, parents: Iterable[str]) -> tuple[str, ...]:
    """Return the URNs that a resource may have had before, without its present one.

    `parents` are the earlier URNs of its parent. If the name of a child starts with its parent's, it changes with it.
    """
    specs = (AliasSpec(), *registration.aliases)
    candidates = (name for spec in specs for name in _urns_of_alias(spec, registration, urn, tuple(parents)))
    return tuple(dict.fromkeys(name for name in candidates if name != urn))


def _urns_of_alias(spec: AliasSpec, registration: Registration, urn: str, parents: tuple[str, ...]) -> Iterator[str]:
    if spec.urn:
        yield spec.urn
        return
    present = parse_urn(urn)
    token = spec.type or registration.type
    stack, project = spec.stack or present.stack, spec.project or present.project
    for parent in _parents(spec, registration, parents):
        yield child_urn(stack, project, parent, token, spec.name or _earlier_name(registration, parent))


def _parents(spec: AliasSpec, registration: Registration, parents: tuple[str, ...]) -> tuple[str, ...]:
    if spec.no_parent:
        return ("",)
    return (spec.parent,) if spec.parent else (registration.parent, *parents)


def _earlier_name(registration: Registration, parent: str) -> str:
    """Return the name of a child under an earlier parent: `db-disk` of `db` was `base-disk` of `base`."""
    name = registration.name
    if not parent or not registration.parent or parent == registration.parent:
        return name
    present, before = parse_urn(registration.parent).name, parse_urn(parent).name
    return before + name[len(present) :] if name.startswith(present) else name
