"""Where and who a program is: region, account, partition."""

from typing import Any

from bedplate.rehearsal.kind import Props
from bedplate.rehearsal.lookups.lookup import Lookup
from bedplate.rehearsal.refusal import Refusal
from bedplate.rehearsal.simulation import Aws


def _region(aws: Aws, args: Props) -> dict[str, Any]:
    name = args.get("name") or aws.region
    if args.get("endpoint"):
        name = str(args["endpoint"]).removeprefix("ec2.").partition(".")[0]
    known = aws.call("ec2", "describe_regions", AllRegions=True)["Regions"]
    if name not in [region["RegionName"] for region in known]:
        raise Refusal("NotFound", f"no matching EC2 Region found: {name}")
    return {"endpoint": f"ec2.{name}.amazonaws.com", "id": name, "name": name, "region": name}


REGION = Lookup("aws:index/getRegion:getRegion", frozenset({"endpoint", "id", "name"}), _region)


def _caller(aws: Aws, args: Props) -> dict[str, Any]:
    found = aws.call("sts", "get_caller_identity")
    account = found["Account"]
    return {"accountId": account, "arn": found["Arn"], "id": account, "userId": found["UserId"]}


CALLER_IDENTITY = Lookup("aws:index/getCallerIdentity:getCallerIdentity", frozenset({"id"}), _caller)


def _partition(aws: Aws, args: Props) -> dict[str, Any]:
    return {
        "dnsSuffix": "amazonaws.com",
        "id": "aws",
        "partition": "aws",
        "reverseDnsPrefix": "com.amazonaws",
    }


PARTITION = Lookup("aws:index/getPartition:getPartition", frozenset({"id"}), _partition)
