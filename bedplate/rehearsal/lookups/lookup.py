"""A data function as a row of a table, and the form of its answer as the SDK has it."""

import functools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pulumi import _types

from bedplate.rehearsal.kind import Props
from bedplate.rehearsal.schema import leaf, plain_kind
from bedplate.rehearsal.simulation import Aws
from bedplate.rehearsal.state import Refusal


@dataclass(frozen=True, slots=True)
class Lookup:
    """One row: what a data function may be asked, and how the answer is found."""

    token: str
    args: frozenset[str]
    find: Callable[[Aws, Props], dict[str, Any]]
    """Return the properties of the answer that are neither empty nor an argument."""


@functools.cache
def empty_result(token: str) -> Mapping[str, Any]:
    """Return every property of a data function's answer, each with the empty value of its type."""
    module, _, name = token.removeprefix("aws:").rpartition(":")[0].partition("/")
    file = re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", name).lower()
    found = leaf("pulumi_aws" if module == "index" else f"pulumi_aws.{module}", file)
    result = getattr(found, f"{name[0].upper()}{name[1:]}Result")
    empties = {bool: False, list: [], dict: {}, int: 0, float: 0}
    types = _types.output_type_types(result)
    return {key: empties.get(plain_kind(_types.unwrap_type(tp)), "") for key, tp in types.items()}


def filters(args: Props, names: Mapping[str, str] | None = None) -> list[dict[str, Any]]:
    """Return EC2's filters of `filters`, `tags` and those arguments that `names` gives a filter for."""
    given = [{"Name": one["name"], "Values": one["values"]} for one in args.get("filters") or []]
    tags = [{"Name": f"tag:{key}", "Values": [value]} for key, value in (args.get("tags") or {}).items()]
    known = {name: args[key] for key, name in (names or {}).items() if args.get(key) not in (None, "")}
    own = [{"Name": name, "Values": [_word(value)]} for name, value in known.items()]
    return [*given, *tags, *own]


def _word(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def only_one(noun: str, found: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the one thing that was found; refuse none and many, in the provider's words."""
    if not found:
        raise Refusal("NotFound", f"no matching {noun} found")
    if len(found) > 1:
        raise Refusal("TooManyResults", f"multiple {noun}s matched; use additional constraints to reduce them to one")
    return found[0]


def tag_map(listed: list[dict[str, str]] | None) -> dict[str, str]:
    """Return tags as a mapping."""
    return {tag["Key"]: tag["Value"] for tag in listed or []}


def picked(found: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Return the properties that AWS gave, under their names in the schema."""
    return {key: found[name] for key, name in names.items() if found.get(name) is not None}
