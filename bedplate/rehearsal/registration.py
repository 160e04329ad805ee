"""What a program asks for when it declares a resource, freed from the wire's form."""

import asyncio
import hashlib
from collections.abc import Awaitable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from google.protobuf.message import Message
from pulumi.runtime._callbacks import _CallbackServicer
from pulumi.runtime.proto import alias_pb2, resource_pb2

from bedplate.rehearsal import state as urns
from bedplate.rehearsal.provider import AwsProvider, configured
from bedplate.rehearsal.simulation import Simulation
from bedplate.rehearsal.state import Entry, Ledger, Refusal, Snapshot, Unsupported
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


def earlier_urns(asked: Registration, urn: str, parents: Iterable[str]) -> tuple[str, ...]:
    """Return the URNs that a resource may have had, its present one left out.

    `parents` are the earlier URNs of its parent; a child named after its parent was renamed with it.
    """
    specs = (AliasSpec(), *asked.aliases)
    found = (one for spec in specs for one in _of_spec(spec, asked, urn, tuple(parents)))
    return tuple(dict.fromkeys(one for one in found if one != urn))


def _of_spec(spec: AliasSpec, asked: Registration, urn: str, parents: tuple[str, ...]) -> Iterator[str]:
    if spec.urn:
        yield spec.urn
        return
    now = urns.parse(urn)
    token = spec.type or asked.type
    stacks = product((spec.stack or now.stack,), (spec.project or now.project,))
    for (stack, project), parent in product(stacks, _parents(spec, asked, parents)):
        yield urns.child(stack, project, parent, token, spec.name or _renamed(asked, parent))


def _parents(spec: AliasSpec, asked: Registration, parents: tuple[str, ...]) -> tuple[str, ...]:
    if spec.no_parent:
        return ("",)
    return (spec.parent,) if spec.parent else (asked.parent, *parents)


def _renamed(asked: Registration, parent: str) -> str:
    """Return the name a child had under an earlier parent: `db-disk` of `db` was `base-disk` of `base`."""
    if not parent or not asked.parent or parent == asked.parent:
        return asked.name
    now, before = urns.parse(asked.parent).name, urns.parse(parent).name
    return before + asked.name[len(now) :] if asked.name.startswith(now) else asked.name


# What a transform may change, in the request's terms and in the transform's: name there -> name here.
_PLAIN = {
    "protect": "protect",
    "retain_on_delete": "retainOnDelete",
    "provider": "provider",
    "version": "version",
    "deleted_with": "deletedWith",
}
_LISTS = {
    "depends_on": "dependencies",
    "ignore_changes": "ignoreChanges",
    "replace_on_changes": "replaceOnChanges",
    "additional_secret_outputs": "additionalSecretOutputs",
    "aliases": "aliases",
}


@dataclass(slots=True)
class Transforms:
    """The transforms of one run: the stack's, and each resource's, which its children inherit."""

    stack: list[str] = field(default_factory=list)
    _of: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def apply(self, asked: resource_pb2.RegisterResourceRequest, urn: str) -> None:
        """Change a request as the resource's own transforms want, then its ancestors', then the stack's."""
        own = tuple(callback.token for callback in asked.transforms)
        inherited = self._of.get(asked.parent, ())
        self._of[urn] = (*own, *inherited)
        for token in (*own, *inherited, *self.stack):
            _merge(asked, _call(token, _question(asked)))


def _question(asked: resource_pb2.RegisterResourceRequest) -> resource_pb2.TransformRequest:
    options = resource_pb2.TransformResourceOptions(
        **{theirs: getattr(asked, ours) for theirs, ours in {**_PLAIN, **_LISTS}.items()}
    )
    if asked.deleteBeforeReplaceDefined:
        options.delete_before_replace = asked.deleteBeforeReplace
    return resource_pb2.TransformRequest(
        type=asked.type,
        name=asked.name,
        custom=asked.custom,
        parent=asked.parent,
        properties=asked.object,
        options=options,
    )


def _merge(asked: resource_pb2.RegisterResourceRequest, answer: resource_pb2.TransformResponse) -> None:
    asked.object.CopyFrom(answer.properties)
    if not answer.HasField("options"):
        return
    for theirs, ours in _PLAIN.items():
        setattr(asked, ours, getattr(answer.options, theirs))
    for theirs, ours in _LISTS.items():
        field = getattr(asked, ours)
        del field[:]
        field.extend(getattr(answer.options, theirs))
    if answer.options.HasField("delete_before_replace"):
        asked.deleteBeforeReplace, asked.deleteBeforeReplaceDefined = (
            answer.options.delete_before_replace,
            True,
        )


def _call(token: str, question: resource_pb2.TransformRequest) -> Any:  # noqa: ANN401  # the SDK types it as Message
    for servicer in list(_CallbackServicer._servicers):  # noqa: SLF001  # a contract test watches these names
        if callback := servicer._callbacks.get(token):  # noqa: SLF001
            answer = _awaited(callback(question.SerializeToString()))
            waiting = asyncio.run_coroutine_threadsafe(answer, servicer._loop)  # noqa: SLF001
            try:
                return waiting.result()
            except Exception as error:  # whatever a program's function raises is its own fault
                raise Refusal("TransformFailed", f"{type(error).__name__}: {error}") from error
    raise Refusal("TransformFailed", "the program ended before it could be asked")


async def _awaited(answer: Awaitable[Message]) -> Message:
    return await answer


_AWS = "aws"


@dataclass(frozen=True, slots=True)
class DefaultProvider:
    """What the stack's configuration says of providers that a program does not make itself."""

    region: str | None
    disabled: tuple[str, ...] = ()

    def refuses(self, package: str) -> bool:
        """Whether a resource of the package must name its provider."""
        return "*" in self.disabled or package in self.disabled


@dataclass(slots=True)
class Providers:
    """Configured providers by reference: the URN, and an id that changes with the region."""

    simulation: Simulation
    ledger: Ledger
    default: DefaultProvider
    _made: dict[str, AwsProvider] = field(default_factory=dict)

    def configure(self, urn: str, inputs: Mapping[str, Any]) -> None:
        """Configure the provider that the program registered under a URN."""
        package = urns.parse(urn).type.removeprefix(urns.PROVIDER_PREFIX)
        if package != _AWS:
            raise Unsupported(f"the rehearsal has no model of provider {package}")
        self._made[f"{urn}::{provider_id(inputs)}"] = configured(self.simulation, self.ledger, inputs)

    def log_in(self, urn: str, inputs: Mapping[str, Any]) -> None:
        """Ask a configured provider's region whose account it is, as the AWS provider does; raise Refusal otherwise."""
        aws = self.of(f"{urn}::{provider_id(inputs)}").aws
        aws.call("sts", "get_caller_identity")

    def of(self, reference: str) -> AwsProvider:
        """Return the provider of a reference `<urn>::<id>`."""
        if reference not in self._made:
            raise Refusal("UnknownProvider", f"no provider {reference} is registered in this run")
        return self._made[reference]

    def restore(self, state: Snapshot) -> None:
        """Configure the providers of a state, so that what they made can be deleted, whatever the program declares."""
        for entry in state.entries.values():
            if entry.is_provider:
                self.configure(entry.urn, entry.inputs)

    def default_entry(self, stack: str, project: str, token: str, version: str) -> Entry:
        """Return the entry of the default provider for a token; raise Refusal where it is disabled."""
        package = token.partition(":")[0]
        if package != _AWS:
            raise Unsupported(f"the rehearsal has no model of package {package}, which {token} belongs to")
        if self.default.refuses(package):
            raise Refusal("DefaultProviderDisabled", f"{token} must name its provider: default ones are disabled")
        name = f"default_{version.replace('.', '_')}" if version else "default"
        urn = str(urns.Urn(stack, project, urns.PROVIDER_PREFIX + package, name))
        inputs = {"region": self.default.region} | ({"version": version} if version else {})
        return Entry(urn=urn, custom=True, ident=provider_id(inputs), inputs=inputs, outputs=inputs)


def provider_id(inputs: Mapping[str, Any]) -> str:
    """Return the id of a provider: like the engine's, it tells nothing and is another when the provider is replaced."""
    return hashlib.sha256(str(inputs.get("region")).encode()).hexdigest()[:32]
