"""IAM policy documents as values: what a statement allows, to whom, and whether a condition narrows it."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from bedplate.audit.condition import narrows
from bedplate.audit.value import Properties, is_seen, part, parts, words


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement of a policy; `key` is where it stands in its resource."""

    key: str
    body: Properties

    @property
    def allows(self) -> bool:
        """Whether it grants something."""
        return self.body.get("Effect") == "Allow"

    @property
    def actions(self) -> tuple[str, ...]:
        """The actions, in lower case: IAM does not tell cases apart."""
        return tuple(action.lower() for action in words(self.body.get("Action")))

    @property
    def resources(self) -> tuple[str, ...]:
        """The resources, as they are written."""
        return words(self.body.get("Resource"))

    @property
    def is_for_everybody(self) -> bool:
        """Whether any principal at all is meant."""
        told = self.body.get("Principal")
        kinds = told.values() if isinstance(told, dict) else (told,)
        return any("*" in words(names) for names in kinds) or "NotPrincipal" in self.body

    @property
    def is_narrowed(self) -> bool:
        """Whether a condition says who is meant."""
        return narrows(part(self.body, "Condition"))

    @property
    def refuses_clear_text(self) -> bool:
        """Whether it denies everybody everything that does not come over TLS, on more than the thing itself."""
        condition = part(self.body, "Condition")
        told = [test for key in ("Bool", "BoolIfExists") for test in part(condition, key).items()]
        return (
            self.body.get("Effect") == "Deny"
            and self.is_for_everybody
            and [(key.lower(), _is_false(value)) for key, value in told] == [("aws:securetransport", True)]
            and len(condition) == 1
        )


def statements(holder: Properties, key: str) -> Iterator[Statement]:
    """Yield the statements of the policy under a key; none where it cannot be seen or is no policy."""
    document = _document(holder.get(key))
    for index, body in enumerate(parts(document.get("Statement"))):
        yield Statement(f"{key}.Statement.{index}", body)


def _is_false(value: object) -> bool:
    return value is False or words(value) in (("false",), ("False",))


def is_hidden(holder: Properties, key: str) -> bool:
    """Whether there is a policy and it cannot be seen."""
    return not is_seen(holder.get(key))


def _document(value: object) -> dict[str, Any]:
    if isinstance(value, str) and is_seen(value):
        try:
            value = json.loads(value)
        except (json.JSONDecodeError, RecursionError):
            return {}
    return value if isinstance(value, dict) else {}
