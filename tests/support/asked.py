"""What AWS answers about a resource, without what changes by itself: moments, and the envelope of a reply."""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from bedplate.rehearsal.simulation import Aws
from tests.support.told import Told

_ENVELOPE = frozenset({"LastUpdatedTime", "ResponseMetadata", "RequestId"})


def settled(value: object) -> object:
    """Return an answer without moments and envelopes; a truth is told in both of its spellings."""
    if isinstance(value, Mapping):
        kept = {key: item for key, item in value.items() if key not in _ENVELOPE}
        return {key: settled(item) for key, item in kept.items() if not isinstance(item, datetime)}
    if isinstance(value, list):
        return [settled(item) for item in value]
    return [value, str(value).lower()] if isinstance(value, bool) else value


def asked(service: str, operation: str, **params: Callable[[str, Mapping[str, Any]], object]) -> Told:
    """Return what tells of a resource by one call, whose parameters come of its id and inputs."""

    def tell(aws: Aws, ident: str, inputs: Mapping[str, Any]) -> object:
        given = {name: make(ident, inputs) for name, make in params.items()}
        return settled(aws.call(service, operation, **given))

    return tell


def every(*told: Told) -> Told:
    """Return what tells all that several tell."""

    def tell(aws: Aws, ident: str, inputs: Mapping[str, Any]) -> object:
        return [one(aws, ident, inputs) for one in told]

    return tell


def faked(aws: Aws, ident: str, inputs: Mapping[str, Any]) -> object:
    """Return the fakes of an id: of what moto has no model of."""
    return [row for rows in aws.simulation.fakes.values() for key, row in rows.items() if key.endswith(ident)]


def own(ident: str, inputs: Mapping[str, Any]) -> str:
    """Return the id itself, as a parameter."""
    return ident


def listed(ident: str, inputs: Mapping[str, Any]) -> list[str]:
    """Return the id in a list, as a parameter."""
    return [ident]
