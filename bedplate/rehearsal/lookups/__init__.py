"""The table of data functions: what a program may ask the simulated AWS about, one module a noun."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from bedplate.rehearsal.kind import Props
from bedplate.rehearsal.lookups.bucket import BUCKET
from bedplate.rehearsal.lookups.identity import CALLER_IDENTITY, PARTITION, REGION
from bedplate.rehearsal.lookups.image import IMAGE
from bedplate.rehearsal.lookups.instance_type import INSTANCE_TYPE, INSTANCE_TYPE_OFFERINGS
from bedplate.rehearsal.lookups.key import ALIAS, KEY
from bedplate.rehearsal.lookups.lookup import Lookup, empty_result
from bedplate.rehearsal.lookups.network import SUBNET, SUBNETS, VPC
from bedplate.rehearsal.lookups.parameter import PARAMETER
from bedplate.rehearsal.lookups.policy_document import POLICY_DOCUMENT
from bedplate.rehearsal.lookups.zone import AVAILABILITY_ZONE, AVAILABILITY_ZONES, HOSTED_ZONE
from bedplate.rehearsal.refusal import Refusal, Unsupported
from bedplate.rehearsal.simulation import Aws

_ROWS = (
    ALIAS,
    AVAILABILITY_ZONE,
    AVAILABILITY_ZONES,
    BUCKET,
    CALLER_IDENTITY,
    HOSTED_ZONE,
    IMAGE,
    INSTANCE_TYPE,
    INSTANCE_TYPE_OFFERINGS,
    KEY,
    PARAMETER,
    PARTITION,
    POLICY_DOCUMENT,
    REGION,
    SUBNET,
    SUBNETS,
    VPC,
)

LOOKUPS: Mapping[str, Lookup] = MappingProxyType({row.token: row for row in _ROWS})


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
