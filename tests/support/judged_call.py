"""Calls to AWS judged by policies as IAM judges them: which statements of a document speak of a call.

Knows the conditions that our own documents have; another one is a KeyError, and never passes for met.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any


@dataclass(frozen=True, slots=True)
class Call:
    """An action on a resource, and what else a request tells of itself: `aws:SecureTransport` and the like."""

    action: str
    resource: str
    told: Mapping[str, str]


def concerned(document: str, call: Call) -> list[dict[str, Any]]:
    """Return the statements of a policy, allowing or denying, whose every part the call meets."""
    return [one for one in json.loads(document)["Statement"] if _meets(one, call)]


def allowed(call: Call, of_role: str, of_resource: str) -> bool:
    """Tell whether a role's policy allows a call and neither policy denies it."""
    said = {one["Effect"] for one in concerned(of_role, call)}
    return said == {"Allow"} and not any(one["Effect"] == "Deny" for one in concerned(of_resource, call))


def _meets(statement: Mapping[str, Any], call: Call) -> bool:
    return (
        any(fnmatchcase(call.action, pattern) for pattern in statement["Action"])
        and any(fnmatchcase(call.resource, pattern) for pattern in statement["Resource"])
        and all(_holds(operator, tests, call.told) for operator, tests in statement.get("Condition", {}).items())
    )


def _holds(operator: str, tests: Mapping[str, list[str]], told: Mapping[str, str]) -> bool:
    """Tell whether a condition holds, absent keys included (IAM user guide, condition operators)."""
    return all(_OPERATORS[operator](told.get(key), wanted) for key, wanted in tests.items())


_OPERATORS: Mapping[str, Callable[[str | None, list[str]], bool]] = {
    "Bool": lambda told, wanted: told in wanted,
    "BoolIfExists": lambda told, wanted: told is None or told in wanted,
    "NumericLessThan": lambda told, wanted: told is not None and float(told) < float(wanted[0]),
    "StringNotEquals": lambda told, wanted: told not in wanted,
}
