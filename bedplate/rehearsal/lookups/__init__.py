"""Data functions such as `aws.ec2.get_ami`, by token: each `Lookup` at the top level of a module of this package."""

from collections.abc import Mapping
from typing import Any

from bedplate.rehearsal.kind import Lookup, Props, empty_result, find_rows
from bedplate.rehearsal.simulation import Aws
from bedplate.rehearsal.state import ResourceError, UnsupportedError

LOOKUPS: Mapping[str, Lookup] = find_rows(__name__, __path__, Lookup)


def look_up(aws: Aws, token: str, args: Props) -> dict[str, Any]:
    """Return the result of a data function: exactly the properties of the SDK's result class.

    Raises UnsupportedError for a function that is not modelled, and ResourceError for an argument that is not modelled
    or for an error of the provider.
    """
    if token not in LOOKUPS:
        raise UnsupportedError(f"the rehearsal does not model data function {token}")
    lookup = LOOKUPS[token]
    present = {key: value for key, value in args.items() if value is not None}
    for key in sorted(present.keys() - lookup.args - {"region"}):
        raise ResourceError("InvalidInput", f"the rehearsal does not model argument {key} of {token}", key=key)
    client = aws.in_region(present["region"]) if present.get("region") else aws
    empty = empty_result(token)
    echo = {key: value for key, value in {**present, "region": client.region}.items() if key in empty}
    return {**empty, **echo, **lookup.find(client, present)}
