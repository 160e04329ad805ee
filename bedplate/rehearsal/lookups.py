"""Data functions without a resource: region, account, partition and availability zones."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pulumi import _types

from bedplate.rehearsal import schema
from bedplate.rehearsal.kind import Props, capitalized
from bedplate.rehearsal.schema import leaf
from bedplate.rehearsal.simulation import Aws
from bedplate.rehearsal.state import ResourceError, UnsupportedError


@dataclass(frozen=True, slots=True)
class Lookup:
    """The model of one data function: its arguments, and the function that returns its result."""

    args: frozenset[str]
    find: Callable[[Aws, Props], dict[str, Any]]
    """Return the properties of the result that are neither empty nor an argument."""


def look_up(aws: Aws, token: str, args: Props) -> dict[str, Any]:
    """Return the result of a data function: exactly the properties of the SDK's result class.

    Raises UnsupportedError for a function that is not modelled, and ResourceError for an argument that is not modelled
    or for an error of the provider.
    """
    if token not in LOOKUPS:
        others = ", ".join(known.rpartition(":")[2] for known in LOOKUPS)
        raise UnsupportedError(f"the rehearsal does not model data function {token}; it models {others}")
    lookup = LOOKUPS[token]
    present = {key: value for key, value in args.items() if value is not None}
    for key in sorted(present.keys() - lookup.args - {"region"}):
        raise ResourceError("InvalidInput", f"the rehearsal does not model argument {key} of {token}", key=key)
    client = aws.in_region(present["region"]) if present.get("region") else aws
    empty = empty_result(token)
    echo = {key: value for key, value in {**present, "region": client.region}.items() if key in empty}
    return {**empty, **echo, **lookup.find(client, present)}


def empty_result(token: str) -> Mapping[str, Any]:
    """Return all properties of a data function's result, each with the empty value of its type."""
    name = token.rpartition(":")[2]
    file = re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", name).lower()
    result = getattr(leaf("pulumi_aws", file), f"{capitalized(name)}Result")
    return {key: schema.empty_value(tp) for key, tp in _types.output_type_types(result).items()}


def _region(aws: Aws, args: Props) -> dict[str, Any]:
    name = args.get("name") or aws.region
    if args.get("endpoint"):
        name = str(args["endpoint"]).removeprefix("ec2.").partition(".")[0]
    regions = aws.call("ec2", "describe_regions", AllRegions=True)["Regions"]
    if name not in [region["RegionName"] for region in regions]:
        raise ResourceError("NotFound", f"no matching EC2 Region found: {name}")
    return {"endpoint": f"ec2.{name}.amazonaws.com", "id": name, "name": name, "region": name}


def _caller(aws: Aws, args: Props) -> dict[str, Any]:
    identity = aws.call("sts", "get_caller_identity")
    account = identity["Account"]
    return {"accountId": account, "arn": identity["Arn"], "id": account, "userId": identity["UserId"]}


def _partition(aws: Aws, args: Props) -> dict[str, Any]:
    return {
        "dnsSuffix": "amazonaws.com",
        "id": "aws",
        "partition": "aws",
        "reverseDnsPrefix": "com.amazonaws",
    }


def _zones(aws: Aws, args: Props) -> dict[str, Any]:
    where = [{"Name": "state", "Values": [args["state"]]}] if args.get("state") else []
    zones = aws.call("ec2", "describe_availability_zones", Filters=where)["AvailabilityZones"]
    zones.sort(key=lambda zone: str(zone["ZoneName"]))
    return {
        "groupNames": sorted({zone.get("GroupName", aws.region) for zone in zones}),
        "id": aws.region,
        "names": [zone["ZoneName"] for zone in zones],
        "zoneIds": [zone["ZoneId"] for zone in zones],
    }


LOOKUPS: Mapping[str, Lookup] = {
    "aws:index/getAvailabilityZones:getAvailabilityZones": Lookup(frozenset({"state"}), _zones),
    "aws:index/getCallerIdentity:getCallerIdentity": Lookup(frozenset({"id"}), _caller),
    "aws:index/getPartition:getPartition": Lookup(frozenset({"id"}), _partition),
    "aws:index/getRegion:getRegion": Lookup(frozenset({"endpoint", "id", "name"}), _region),
}
