"""The AWS provider's part of a run: check inputs, choose automatic names, create, update, read and delete resources.

Properties have the names of the SDK's schema (camelCase), as with the real provider, never boto3's names.
`Providers` holds the configured providers of a run, the default one included.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from bedplate.rehearsal import quotas, schema
from bedplate.rehearsal.kind import InvalidInput, Naming, ResourceKind, schema_violations
from bedplate.rehearsal.kinds import KINDS
from bedplate.rehearsal.kinds.limits import check_tags
from bedplate.rehearsal.simulation import Aws, Simulation
from bedplate.rehearsal.state import (
    PROVIDER_PREFIX,
    Entry,
    Ledger,
    ResourceError,
    Snapshot,
    UnsupportedError,
    Urn,
    parse_urn,
)
from bedplate.rehearsal.wire import UNKNOWN, Secret, holds_unknown, reveal, secret_texts

_AWS = "aws"
# Provider inputs that the simulation uses, and those that it ignores: for the login to AWS, and foreign tags, which it
# does not have. All others are errors, above all `endpoints`.
_USED = frozenset({"region", "defaultTags", "allowedAccountIds"})
_IGNORED = frozenset(
    {
        "accessKey",
        "assumeRoles",
        "ignoreTags",
        "maxRetries",
        "profile",
        "retryMode",
        "secretKey",
        "sharedConfigFiles",
        "sharedCredentialsFiles",
        "skipCredentialsValidation",
        "skipMetadataApiCheck",
        "skipRegionValidation",
        "skipRequestingAccountId",
        "token",
        "version",
    }
)
# AWS's error codes for a resource that does not exist.
_NOT_FOUND = re.compile(r"NotFound|NoSuch")


@dataclass(frozen=True, slots=True)
class Checked:
    """Inputs as the provider uses them, and the names of the inputs that it filled in."""

    inputs: Mapping[str, Any]
    defaults: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class AwsProvider:
    """One configured provider: a region, and the default tags of its resources."""

    aws: Aws
    ledger: Ledger
    default_tags: Mapping[str, str] = field(default_factory=dict)

    def check(
        self, kind: ResourceKind, urn: str, inputs: Mapping[str, Any], old: Checked | None, *, salt: str = ""
    ) -> Checked:
        """Return the inputs with automatic names, defaults and default tags.

        Automatic names are kept from `old`. Without `old`, they are new and depend on `salt`. Raises ResourceError with
        every invalid input.
        """
        _refuse([*schema_violations(kind.token, inputs), *_unmodelled(kind, inputs)])
        present = {key: value for key, value in inputs.items() if value is not None}
        filled = {key: value for key, value in kind.defaults.items() if key not in present}
        if kind.naming and kind.naming.key not in present:
            filled[kind.naming.key] = _automatic_name(kind.naming, urn, old, salt)
        full = self._tagged(kind, {**present, **filled})
        plain = reveal(full)
        _refuse([*check_tags(plain), *kind.complaints(self._client(full), plain)])
        return Checked(full, frozenset(filled))

    def create(self, kind: ResourceKind, checked: Checked) -> tuple[str, dict[str, Any]]:
        """Create a resource; return its id and outputs."""
        plain = _without_region(checked.inputs)
        aws = self._client(checked.inputs)
        quotas.check(kind.token, plain, self.ledger.live(kind.token, aws.region))
        ident = kind.create(aws, plain)
        return ident, self._outputs(kind, aws, ident, checked.inputs)

    def update(self, kind: ResourceKind, ident: str, old: Mapping[str, Any], checked: Checked) -> dict[str, Any]:
        """Update a resource in place; return its outputs."""
        aws = self._client(checked.inputs)
        kind.update(aws, ident, _without_region(old), _without_region(checked.inputs))
        return self._outputs(kind, aws, ident, checked.inputs)

    def delete(self, kind: ResourceKind, ident: str, outputs: Mapping[str, Any]) -> None:
        """Delete a resource; ignore that it does not exist."""
        aws = self._client(outputs)
        try:
            kind.delete(aws, ident, reveal(dict(outputs)))
        except ResourceError as refusal:
            if not _NOT_FOUND.search(refusal.code):
                raise
        self.ledger.remove(kind.token, aws.region, ident)

    def read(self, kind: ResourceKind, ident: str, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the outputs of an existing resource; raise ResourceError if it does not exist."""
        aws = self._client(inputs)
        outputs = self.ledger.find(kind.token, aws.region, ident)
        return outputs if outputs is not None else kind.read(aws, ident, reveal(dict(inputs)))

    def expected(self, kind: ResourceKind, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the outputs of a create step in a preview: UNKNOWN except outputs that repeat an input."""
        return {**dict.fromkeys(schema.outputs(kind.token), UNKNOWN), **self._echo(kind, inputs)}

    def expected_update(self, kind: ResourceKind, old: Mapping[str, Any], inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the outputs of an update step in a preview."""
        return {**old, **self._echo(kind, inputs), **dict.fromkeys(kind.changed_by_update, UNKNOWN)}

    def _outputs(self, kind: ResourceKind, aws: Aws, ident: str, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the outputs of a created or updated resource, and add them to the ledger."""
        computed = kind.read(aws, ident, _without_region(inputs))
        secrets = secret_texts(dict(inputs))
        # AWS may return a secret input as an output of another name.
        marked = {
            key: Secret(value) if secrets & secret_texts(Secret(value)) else value for key, value in computed.items()
        }
        unknown_names = marked.keys() - schema.outputs(kind.token).keys()
        if unknown_names:
            raise AssertionError(f"{kind.token}: the schema has no outputs {sorted(unknown_names)}")
        outputs = {**schema.outputs(kind.token), **self._echo(kind, inputs), **marked}
        self.ledger.add(kind.token, aws.region, ident, outputs)
        return outputs

    def _echo(self, kind: ResourceKind, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the outputs that repeat an input."""
        outputs = schema.outputs(kind.token)
        echo = {key: value for key, value in inputs.items() if key in outputs}
        if "region" in outputs:
            echo["region"] = self._client(inputs).region
        if "tagsAll" in outputs:
            echo["tagsAll"] = inputs.get("tags") or {}
        return echo

    def _tagged(self, kind: ResourceKind, inputs: dict[str, Any]) -> dict[str, Any]:
        """Return inputs with the provider's default tags; the resource's tags override them."""
        tags = inputs.get("tags")
        if not self.default_tags or "tagsAll" not in schema.outputs(kind.token) or tags is UNKNOWN:
            return inputs
        return {**inputs, "tags": {**self.default_tags, **(tags or {})}}

    def _client(self, properties: Mapping[str, Any]) -> Aws:
        region = properties.get("region")
        return self.aws.in_region(region) if isinstance(region, str) and region else self.aws


def configured(simulation: Simulation, ledger: Ledger, inputs: Mapping[str, Any]) -> AwsProvider:
    """Return the provider that a program configured; nested inputs of providers are JSON text on the wire."""
    plain = {key: _decoded(value) for key, value in reveal(dict(inputs)).items() if value is not None}
    for key in sorted(plain.keys() - _USED - _IGNORED):
        raise UnsupportedError(f"the rehearsal does not model provider input {key}; remove it", key=key)
    allowed = plain.get("allowedAccountIds")
    if allowed and simulation.account not in allowed:
        raise ResourceError("InvalidAccount", f"AWS account {simulation.account} is not among allowedAccountIds")
    if plain.get("region") is UNKNOWN:
        raise UnsupportedError("the rehearsal does not model a provider region that is an output", key="region")
    if not plain.get("region"):
        raise ResourceError("MissingRegion", "the provider has no region; set `region`", key="region")
    tags = (plain.get("defaultTags") or {}).get("tags") or {}
    return AwsProvider(simulation.region(plain["region"]), ledger, tags)


def kind_of(token: str) -> ResourceKind:
    """Return the kind of a type token; raise UnsupportedError if the rehearsal, or the SDK, has no such type."""
    if token not in KINDS:
        if token.startswith("aws:"):
            schema.resource_class(token)
        raise UnsupportedError(f"the rehearsal does not model {token}")
    return KINDS[token]


def _decoded(value: object) -> Any:  # noqa: ANN401  # any JSON value
    try:
        return json.loads(value) if isinstance(value, str) and value[:1] in ("{", "[") else value
    except ValueError:
        return value


def _without_region(inputs: Mapping[str, Any]) -> dict[str, Any]:
    return {key: reveal(value) for key, value in inputs.items() if key != "region"}


def _unmodelled(kind: ResourceKind, inputs: Mapping[str, Any]) -> Iterator[InvalidInput]:
    for key in sorted(schema.inputs(kind.token) & inputs.keys()):
        if key not in kind.inputs and key not in ("region", "tags") and inputs[key] is not None:
            yield InvalidInput(key, "is not modelled by the rehearsal")


def _refuse(invalid: list[InvalidInput]) -> None:
    if invalid:
        message = "; ".join(f"{complaint.key} {complaint.reason}" for complaint in invalid)
        raise ResourceError("InvalidInput", message, key=invalid[0].key)


def _automatic_name(naming: Naming, urn: str, old: Checked | None, salt: str) -> Any:  # noqa: ANN401  # an old input
    if old is not None and naming.key in old.defaults and not holds_unknown(old.inputs.get(naming.key)):
        return old.inputs[naming.key]
    digits = hashlib.sha256(f"{urn} {salt}".encode()).hexdigest()[:7]
    stem = naming.prefix + urn.rpartition("::")[2]
    name = f"{stem[: naming.longest - len(digits) - 1]}-{digits}"
    return name.lower() if naming.lower else name


@dataclass(frozen=True, slots=True)
class DefaultProvider:
    """The stack configuration of default providers: `aws:region` and `pulumi:disable-default-providers`."""

    region: str | None
    disabled: tuple[str, ...] = ()

    def refuses(self, package: str) -> bool:
        """Return whether resources of the package must have an explicit provider."""
        return "*" in self.disabled or package in self.disabled


@dataclass(slots=True)
class Providers:
    """The configured providers of a run by reference `<urn>::<id>`; the id changes with the region."""

    simulation: Simulation
    ledger: Ledger
    default: DefaultProvider
    _configured: dict[str, AwsProvider] = field(default_factory=dict)

    def configure(self, urn: str, inputs: Mapping[str, Any]) -> None:
        """Configure the provider that the program registered under a URN."""
        package = parse_urn(urn).type.removeprefix(PROVIDER_PREFIX)
        if package != _AWS:
            raise UnsupportedError(f"the rehearsal does not model provider {package}, only {_AWS}")
        self._configured[f"{urn}::{provider_id(inputs)}"] = configured(self.simulation, self.ledger, inputs)

    def check_account(self, urn: str, inputs: Mapping[str, Any]) -> None:
        """Call STS in a provider's region, as the AWS provider does first; raise ResourceError if the call fails."""
        aws = self.of(f"{urn}::{provider_id(inputs)}").aws
        aws.call("sts", "get_caller_identity")

    def of(self, reference: str) -> AwsProvider:
        """Return the provider of a reference."""
        if reference not in self._configured:
            raise ResourceError("UnknownProvider", f"provider {reference} is not registered in this run")
        return self._configured[reference]

    def restore(self, snapshot: Snapshot) -> None:
        """Configure the providers of a state: a run may delete their resources and no longer declare them."""
        for entry in snapshot.entries.values():
            if entry.is_provider:
                self.configure(entry.urn, entry.inputs)

    def default_entry(self, stack: str, project: str, token: str, version: str) -> Entry:
        """Return the entry of a type's default provider; raise ResourceError if default providers are disabled."""
        package = token.partition(":")[0]
        if package != _AWS:
            raise UnsupportedError(f"the rehearsal does not model {token}: it knows package {_AWS} only")
        if self.default.refuses(package):
            message = f"{token} needs an explicit provider: default providers are disabled"
            raise ResourceError("DefaultProviderDisabled", message)
        name = f"default_{version.replace('.', '_')}" if version else "default"
        urn = str(Urn(stack, project, PROVIDER_PREFIX + package, name))
        inputs = {"region": self.default.region} | ({"version": version} if version else {})
        return Entry(urn=urn, custom=True, ident=provider_id(inputs), inputs=inputs, outputs=inputs)


def provider_id(inputs: Mapping[str, Any]) -> str:
    """Return the id of a provider: as in the engine, it is opaque and changes if the provider is replaced."""
    return hashlib.sha256(str(inputs.get("region")).encode()).hexdigest()[:32]
