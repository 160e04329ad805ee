"""The model of one data function (`Lookup`), its empty result, and conversions that several lookups share."""

import functools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pulumi import _types

from bedplate.rehearsal.kind import Props
from bedplate.rehearsal.schema import leaf, plain_kind
from bedplate.rehearsal.simulation import Aws
from bedplate.rehearsal.state import ResourceError


@dataclass(frozen=True, slots=True)
class Lookup:
    """The model of one data function: its token, its arguments, and the function that returns its result."""

    token: str
    args: frozenset[str]
    find: Callable[[Aws, Props], dict[str, Any]]
    """Return the properties of the result that are neither empty nor an argument."""


@functools.cache
def empty_result(token: str) -> Mapping[str, Any]:
    """Return all properties of a data function's result, each with the empty value of its type."""
    module, _, name = token.removeprefix("aws:").rpartition(":")[0].partition("/")
    file = re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", name).lower()
    sdk_module = leaf("pulumi_aws" if module == "index" else f"pulumi_aws.{module}", file)
    result = getattr(sdk_module, f"{name[0].upper()}{name[1:]}Result")
    empties = {bool: False, list: [], dict: {}, int: 0, float: 0}
    types = _types.output_type_types(result)
    return {key: empties.get(plain_kind(_types.unwrap_type(tp)), "") for key, tp in types.items()}


def filters(args: Props, names: Mapping[str, str] | None = None) -> list[dict[str, Any]]:
    """Return the EC2 filters for `filters`, `tags` and the arguments that `names` maps to a filter."""
    explicit = [{"Name": block["name"], "Values": block["values"]} for block in args.get("filters") or []]
    tags = [{"Name": f"tag:{key}", "Values": [value]} for key, value in (args.get("tags") or {}).items()]
    values = {name: args[key] for key, name in (names or {}).items() if args.get(key) not in (None, "")}
    by_argument = [{"Name": name, "Values": [_filter_text(value)]} for name, value in values.items()]
    return [*explicit, *tags, *by_argument]


def _filter_text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def only_one(noun: str, matches: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the only match; raise ResourceError for none or several, with the provider's messages."""
    if not matches:
        raise ResourceError("NotFound", f"no matching {noun} found")
    if len(matches) > 1:
        raise ResourceError(
            "TooManyResults", f"multiple {noun}s matched; use additional constraints to reduce them to one"
        )
    return matches[0]


def tag_map(tags: list[dict[str, str]] | None) -> dict[str, str]:
    """Return AWS's list of tags as a mapping."""
    return {tag["Key"]: tag["Value"] for tag in tags or []}


def picked(reply: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Return the properties in a reply of AWS, by their names in the schema; `names` is schema name -> AWS name."""
    return {key: reply[name] for key, name in names.items() if reply.get(name) is not None}
