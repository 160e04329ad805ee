"""What is alive in the simulated AWS, whichever stack made it: for quotas, and for reading what others made."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Ledger:
    """Outputs of live resources by type, region and id; one ledger serves all stacks of a rehearsal."""

    _rows: dict[tuple[str, str], dict[str, dict[str, Any]]] = field(default_factory=dict)

    def add(self, token: str, region: str, ident: str, outputs: Mapping[str, Any]) -> None:
        """Note a resource that was made or changed."""
        self._rows.setdefault((token, region), {})[ident] = dict(outputs)

    def remove(self, token: str, region: str, ident: str) -> None:
        """Strike a resource that was deleted."""
        self._rows.get((token, region), {}).pop(ident, None)

    def find(self, token: str, region: str, ident: str) -> dict[str, Any] | None:
        """Return the outputs of a live resource, or None."""
        return self._rows.get((token, region), {}).get(ident)

    def live(self, token: str, region: str) -> tuple[Mapping[str, Any], ...]:
        """Return the outputs of every live resource of a type in a region."""
        return tuple(self._rows.get((token, region), {}).values())
