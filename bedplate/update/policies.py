"""The update policy of every key, collected from the fields of the models (see `bedplate.spec.policy`)."""

import typing
from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType

from bedplate.spec import Fleet
from bedplate.spec.base import Spec
from bedplate.spec.policy import Effect, Event, OnEdit, Policy

__all__ = ["POLICIES", "Effect", "Event", "Policy"]


def _policies(model: type[Spec], prefix: str = "") -> Iterator[Policy]:
    """Yield the policies of a model's fields and of the models in them, each with its key."""
    for name, field in model.model_fields.items():
        key = f"{prefix}.{name}".lstrip(".")
        types = tuple(_types(field.annotation))
        models = [part for part in types if isinstance(part, type) and issubclass(part, Spec)]
        is_collection = any(typing.get_origin(part) in (Mapping, tuple) for part in types)
        entry = f"{key}.*" if models and is_collection else key
        if isinstance(field.json_schema_extra, OnEdit):
            for policy in field.json_schema_extra.policies:
                yield replace(policy, key=key if policy.event is Event.CHANGED else entry)
        for inner in models:
            yield from _policies(inner, entry)


def _types(annotation: object) -> Iterator[object]:
    """Yield a type and the types of its parameters."""
    yield annotation
    for part in typing.get_args(annotation):
        yield from _types(part)


POLICIES: Mapping[tuple[str, Event], Policy] = MappingProxyType(
    {(policy.key, policy.event): policy for policy in _policies(Fleet)}
)
