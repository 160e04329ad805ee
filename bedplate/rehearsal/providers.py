"""The providers of one run: those the program made, and the default one where it may be used."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from bedplate.rehearsal import urn as urns
from bedplate.rehearsal.ledger import Ledger
from bedplate.rehearsal.provider import AwsProvider, configured
from bedplate.rehearsal.refusal import Refusal, Unsupported
from bedplate.rehearsal.simulation import Simulation
from bedplate.rehearsal.snapshot import Entry, Snapshot

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
