"""What is known of a stack between runs: its resources as they were last made, and its exports."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from bedplate.rehearsal import urn as urns


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One resource of a stack's state. Inputs are those the provider checked; secrets stay marked."""

    urn: str
    custom: bool
    inputs: Mapping[str, Any]
    outputs: Mapping[str, Any]
    ident: str = ""
    parent: str = ""
    dependencies: tuple[str, ...] = ()
    property_dependencies: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    provider: str = ""
    protect: bool = False
    retain: bool = False
    defaults: frozenset[str] = frozenset()
    """Inputs that the provider filled in."""
    delete_first: bool | None = None
    deleted_with: str = ""
    external: bool = False
    """Read, not made, by this stack: never changed nor deleted."""

    @property
    def type(self) -> str:
        """The resource's own type token."""
        return urns.parse(self.urn).type

    @property
    def name(self) -> str:
        """The resource's logical name."""
        return urns.parse(self.urn).name

    @property
    def is_provider(self) -> bool:
        """Whether it is a provider, not something in the cloud."""
        return self.type.startswith(urns.PROVIDER_PREFIX)

    @property
    def is_in_cloud(self) -> bool:
        """Whether there is something in the cloud that this stack made."""
        return self.custom and not self.is_provider and not self.external


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The state of one stack, in the order its resources were registered."""

    entries: Mapping[str, Entry] = field(default_factory=dict)
    leftovers: tuple[Entry, ...] = ()
    """Resources that were replaced and not deleted yet, because the run ended before."""
    exports: Mapping[str, Any] = field(default_factory=dict)
