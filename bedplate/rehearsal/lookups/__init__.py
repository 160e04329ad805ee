"""Data functions, by token: every `Lookup` at the top level of a module of this package."""

from collections.abc import Mapping
from typing import Any

from bedplate.rehearsal.kind import Props, find_rows
from bedplate.rehearsal.lookups.lookup import Lookup, empty_result
from bedplate.rehearsal.simulation import Aws
from bedplate.rehearsal.state import Refusal, Unsupported

LOOKUPS: Mapping[str, Lookup] = find_rows(__name__, __path__, Lookup)


def look_up(aws: Aws, token: str, args: Props) -> dict[str, Any]:
    """Return what a data function answers: every property of the SDK's result, and none besides.

    Raises Unsupported for a function or an argument without a model here, Refusal as the provider would.
    """
    if token not in LOOKUPS:
        raise Unsupported(f"the rehearsal has no model of the data function {token}")
    row = LOOKUPS[token]
    given = {key: value for key, value in args.items() if value is not None}
    for key in sorted(given.keys() - row.args - {"region"}):
        raise Refusal("InvalidInput", f"{token} has no argument {key} here", key=key)
    door = aws.elsewhere(given["region"]) if given.get("region") else aws
    empty = empty_result(token)
    echo = {key: value for key, value in {**given, "region": door.region}.items() if key in empty}
    return {**empty, **echo, **row.find(door, given)}
