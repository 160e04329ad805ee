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
from bedplate.rehearsal.snapshot import Entry

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
    """Configured providers by URN."""

    simulation: Simulation
    ledger: Ledger
    default: DefaultProvider
    _made: dict[str, AwsProvider] = field(default_factory=dict)

    def configure(self, urn: str, inputs: Mapping[str, Any]) -> None:
        """Configure the provider that the program registered under a URN."""
        package = urns.parse(urn).type.removeprefix(urns.PROVIDER_PREFIX)
        if package != _AWS:
            raise Unsupported(f"the rehearsal has no model of provider {package}")
        self._made[urn] = configured(self.simulation, self.ledger, inputs)

    def of(self, reference: str) -> AwsProvider:
        """Return the provider of a reference `<urn>::<id>`; configure it from the state where no program did."""
        urn = reference.rpartition("::")[0]
        if urn not in self._made:
            raise Refusal("UnknownProvider", f"no provider {urn} is registered in this run")
        return self._made[urn]

    def restore(self, entries: Mapping[str, Entry]) -> None:
        """Configure the providers of a state, so that what a program no longer declares can be deleted."""
        for entry in entries.values():
            if entry.is_provider and entry.urn not in self._made:
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
        return Entry(urn=urn, custom=True, ident=provider_id(urn), inputs=inputs, outputs=inputs)


def provider_id(urn: str) -> str:
    """Return the id of a provider: like the engine's, it tells nothing and does not change."""
    return hashlib.sha256(urn.encode()).hexdigest()[:32]
