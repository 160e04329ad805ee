"""IAM policy documents as values."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

# Condition operator to key to values, as in {"Bool": {"aws:SecureTransport": ("false",)}}.
Conditions = Mapping[str, Mapping[str, tuple[str, ...]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """One statement; `principals` maps a kind (AWS, Service) to names, and is empty in a role's policy."""

    sid: str
    actions: tuple[str, ...]
    resources: tuple[str, ...] = ()
    effect: Literal["Allow", "Deny"] = "Allow"
    principals: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    conditions: Conditions = field(default_factory=dict)

    def document(self) -> dict[str, object]:
        """Return the statement as IAM writes it."""
        parts: dict[str, object] = {
            "Sid": self.sid,
            "Effect": self.effect,
            "Principal": self.principals,
            "Action": self.actions,
            "Resource": self.resources,
            "Condition": self.conditions,
        }
        return {name: part for name, part in parts.items() if part}


def policy(*statements: Statement) -> str:
    """Return the JSON text of a policy."""
    document = {"Version": "2012-10-17", "Statement": [statement.document() for statement in statements]}
    return json.dumps(document, sort_keys=True)
