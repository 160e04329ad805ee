"""The statements of a policy: what each names, and what it lets others do."""

import json
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any

Statement = Mapping[str, Any]


def statements(document: Mapping[str, Any]) -> list[Any]:
    """Return the statements of a policy, which may have one alone."""
    return _listed(document["Statement"])


def actions(statement: Statement) -> list[str]:
    """Return the actions that a statement names."""
    return _listed(statement.get("Action", []))


def resources(statement: Statement) -> list[str]:
    """Return the resources that a statement names."""
    return _listed(statement.get("Resource", []))


def principals(statement: Statement) -> list[str]:
    """Return who of AWS's accounts and their users and roles a statement names."""
    who = statement.get("Principal")
    return _listed(who.get("AWS", [])) if isinstance(who, Mapping) else _listed(who or [])


def invites_everybody(document: str) -> bool:
    """Tell whether a policy allows anything to everybody, with no condition."""
    return any(
        one.get("Effect") == "Allow" and "*" in principals(one) and not one.get("Condition")
        for one in statements(json.loads(document))
    )


def leaves_control(document: str, account: str, action: str) -> bool:
    """Tell whether a policy lets somebody of an account do an action, such as changing that policy."""
    return any(
        one.get("Effect") == "Allow"
        and any(who in ("*", account) or f"::{account}:" in who for who in principals(one))
        and any(fnmatchcase(action.lower(), pattern.lower()) for pattern in actions(one))
        for one in statements(json.loads(document))
    )


def strays(document: str, arn: str) -> list[str]:
    """Return the resources of a policy that are neither `arn` nor inside it; a wildcard may stand for either."""
    named = (resource for one in statements(json.loads(document)) for resource in resources(one))
    return [each for each in named if not _concerns(each, arn)]


def _concerns(resource: str, arn: str) -> bool:
    stem = resource.partition("*")[0].partition("?")[0]
    return resource == arn or stem.startswith(f"{arn}/") or (stem != resource and f"{arn}/".startswith(stem))


def _listed(value: Any) -> list[Any]:  # noqa: ANN401  # one JSON value, or a list of them
    return value if isinstance(value, list) else [value]
