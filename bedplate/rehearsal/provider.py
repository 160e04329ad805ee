"""The AWS provider's part of a run: checks inputs, names what is unnamed, and turns kinds into resources with outputs.

Outputs are exactly the properties of the SDK's schema, as the provider's are: never a name of boto3's.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from bedplate.rehearsal import kind as schema_check
from bedplate.rehearsal import quotas, schema
from bedplate.rehearsal.kind import Complaint, Kind, Naming
from bedplate.rehearsal.kinds import KINDS
from bedplate.rehearsal.kinds.limits import tag_complaints
from bedplate.rehearsal.simulation import Aws, Simulation
from bedplate.rehearsal.state import Ledger, Refusal, Unsupported
from bedplate.rehearsal.wire import UNKNOWN, Secret, holds_unknown, reveal, secret_texts

# Provider inputs that the simulation honours, or that say how to log in, which it has no need of. All others,
# `endpoints` first among them, are refused.
_HONOURED = frozenset({"region", "defaultTags", "allowedAccountIds"})
_NEEDLESS = frozenset(
    {
        "accessKey",
        "assumeRoles",
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
# How AWS's error codes say that something does not exist.
_GONE = re.compile(r"NotFound|NoSuch")


@dataclass(frozen=True, slots=True)
class Checked:
    """Inputs as the provider will use them, and which of them it filled in itself."""

    inputs: Mapping[str, Any]
    defaults: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class AwsProvider:
    """One configured provider: a region, and tags that everything it makes carries."""

    aws: Aws
    ledger: Ledger
    default_tags: Mapping[str, str] = field(default_factory=dict)

    def check(self, kind: Kind, urn: str, inputs: Mapping[str, Any], old: Checked | None, *, salt: str = "") -> Checked:
        """Return the inputs with names, defaults and default tags filled in.

        `old` gives the names chosen before; without it, or with another `salt`, new ones are chosen. Raises Refusal
        naming every input at fault.
        """
        found = [*schema_check.complaints(kind.token, inputs), *_unplaced(kind, inputs)]
        _refuse(found)
        given = {key: value for key, value in inputs.items() if value is not None}
        filled = {key: value for key, value in kind.defaults.items() if key not in given}
        if kind.naming and not given.keys() & {kind.naming.key, f"{kind.naming.key}Prefix"}:
            filled[kind.naming.key] = _name(kind.naming, urn, old, salt)
        full = self._tagged(kind, {**given, **filled})
        plain = reveal(full)
        _refuse([*tag_complaints(plain), *kind.complaints(self._door(full), plain)])
        return Checked(full, frozenset(filled))

    def create(self, kind: Kind, checked: Checked) -> tuple[str, dict[str, Any]]:
        """Make a resource; return its id and outputs."""
        plain = _bare(checked.inputs)
        aws = self._door(checked.inputs)
        quotas.admit(kind.token, plain, self.ledger.live(kind.token, aws.region))
        ident = kind.create(aws, plain)
        outputs = self._outputs(kind, aws, ident, checked.inputs)
        self.ledger.add(kind.token, aws.region, ident, outputs)
        return ident, outputs

    def update(self, kind: Kind, ident: str, old: Mapping[str, Any], checked: Checked) -> dict[str, Any]:
        """Change a resource in place; return its outputs."""
        aws = self._door(checked.inputs)
        kind.update(aws, ident, _bare(old), _bare(checked.inputs))
        outputs = self._outputs(kind, aws, ident, checked.inputs)
        self.ledger.add(kind.token, aws.region, ident, outputs)
        return outputs

    def delete(self, kind: Kind, ident: str, outputs: Mapping[str, Any]) -> None:
        """Delete a resource; one that is gone already is no fault."""
        aws = self._door(outputs)
        try:
            kind.delete(aws, ident, reveal(dict(outputs)))
        except Refusal as refusal:
            if not _GONE.search(refusal.code):
                raise
        self.ledger.remove(kind.token, aws.region, ident)

    def read(self, kind: Kind, ident: str, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the outputs of a resource that exists; raise Refusal when it does not."""
        aws = self._door(inputs)
        known = self.ledger.find(kind.token, aws.region, ident)
        return known if known is not None else kind.read(aws, ident, reveal(dict(inputs)))

    def expected(self, kind: Kind, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the outputs that a preview can tell of a resource to be made: the rest is UNKNOWN."""
        return {**dict.fromkeys(schema.outputs(kind.token), UNKNOWN), **self._echo(kind, inputs)}

    def expected_update(self, kind: Kind, old: Mapping[str, Any], inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the outputs that a preview can tell of a resource to be changed in place."""
        return {**old, **self._echo(kind, inputs), **dict.fromkeys(kind.moves, UNKNOWN)}

    def _outputs(self, kind: Kind, aws: Aws, ident: str, inputs: Mapping[str, Any]) -> dict[str, Any]:
        echo = self._echo(kind, inputs)
        decided = kind.read(aws, ident, _bare(inputs))
        secrets = secret_texts(dict(inputs))
        # AWS may answer with a secret under another name than it was given.
        found = {key: Secret(one) if secrets & secret_texts(Secret(one)) else one for key, one in decided.items()}
        strangers = found.keys() - schema.outputs(kind.token).keys()
        if strangers:
            raise AssertionError(f"{kind.token}: the schema has no outputs {sorted(strangers)}")
        return {**schema.outputs(kind.token), **echo, **found, **self._echo_tags(kind, inputs)}

    def _echo(self, kind: Kind, inputs: Mapping[str, Any]) -> dict[str, Any]:
        known = schema.outputs(kind.token)
        echo = {key: value for key, value in inputs.items() if key in known}
        if "region" in known:
            echo["region"] = self._door(inputs).region
        return echo | self._echo_tags(kind, inputs)

    def _echo_tags(self, kind: Kind, inputs: Mapping[str, Any]) -> dict[str, Any]:
        return {"tagsAll": inputs.get("tags") or {}} if "tagsAll" in schema.outputs(kind.token) else {}

    def _tagged(self, kind: Kind, inputs: dict[str, Any]) -> dict[str, Any]:
        """Return inputs with the provider's default tags under the resource's own."""
        own = inputs.get("tags")
        if not self.default_tags or "tagsAll" not in schema.outputs(kind.token) or own is UNKNOWN:
            return inputs
        return {**inputs, "tags": {**self.default_tags, **(own or {})}}

    def _door(self, properties: Mapping[str, Any]) -> Aws:
        region = properties.get("region")
        return self.aws.elsewhere(region) if isinstance(region, str) and region else self.aws


def configured(simulation: Simulation, ledger: Ledger, inputs: Mapping[str, Any]) -> AwsProvider:
    """Return the provider that a program configured; nested inputs of providers are JSON text on the wire."""
    plain = {key: _decoded(value) for key, value in reveal(dict(inputs)).items() if value is not None}
    for key in sorted(plain.keys() - _HONOURED - _NEEDLESS):
        raise Unsupported(f"the rehearsal's provider has no place for input {key}", key=key)
    allowed = plain.get("allowedAccountIds")
    if allowed and simulation.account not in allowed:
        raise Refusal("InvalidAccount", f"AWS account {simulation.account} is not among allowedAccountIds")
    if plain.get("region") is UNKNOWN:
        raise Unsupported("the rehearsal does not model a provider whose region other resources decide", key="region")
    if not plain.get("region"):
        raise Refusal("MissingRegion", "the provider is given no region", key="region")
    tags = (plain.get("defaultTags") or {}).get("tags") or {}
    return AwsProvider(simulation.region(plain["region"]), ledger, tags)


def kind_of(token: str) -> Kind:
    """Return the kind of a type; raise Unsupported, after the SDK's own word on types that do not exist."""
    if token not in KINDS:
        if token.startswith("aws:"):
            schema.resource_class(token)
        raise Unsupported(f"the rehearsal has no model of {token}")
    return KINDS[token]


def _decoded(value: object) -> Any:  # noqa: ANN401  # any JSON value
    try:
        return json.loads(value) if isinstance(value, str) and value[:1] in ("{", "[") else value
    except ValueError:
        return value


def _bare(inputs: Mapping[str, Any]) -> dict[str, Any]:
    return {key: reveal(value) for key, value in inputs.items() if key != "region"}


def _unplaced(kind: Kind, inputs: Mapping[str, Any]) -> Iterator[Complaint]:
    for key in sorted(schema.inputs(kind.token) & inputs.keys()):
        if key not in kind.inputs and key not in ("region", "tags") and inputs[key] is not None:
            yield Complaint(key, "is an input that the rehearsal has no place for")


def _refuse(complaints: list[Complaint]) -> None:
    if complaints:
        told = "; ".join(f"{found.key} {found.reason}" for found in complaints)
        raise Refusal("InvalidInput", told, key=complaints[0].key)


def _name(naming: Naming, urn: str, old: Checked | None, salt: str) -> Any:  # noqa: ANN401  # an earlier name
    if old is not None and naming.key in old.defaults and not holds_unknown(old.inputs.get(naming.key)):
        return old.inputs[naming.key]
    digits = hashlib.sha256(f"{urn} {salt}".encode()).hexdigest()[:7]
    stem = naming.prefix + urn.rpartition("::")[2]
    name = f"{stem[: naming.longest - len(digits) - 1]}-{digits}"
    return name.lower() if naming.lower else name
