"""S3 buckets."""

from typing import Any

from bedplate.rehearsal.kind import Props
from bedplate.rehearsal.kinds.s3_regions import S3_ZONES
from bedplate.rehearsal.lookups.lookup import Lookup
from bedplate.rehearsal.refusal import Refusal
from bedplate.rehearsal.simulation import Aws


def _bucket(aws: Aws, args: Props) -> dict[str, Any]:
    name = str(args["bucket"])
    try:
        aws.call("s3", "head_bucket", Bucket=name)
    except Refusal:
        raise Refusal("NoSuchBucket", f"no matching S3 Bucket found: {name}", key="bucket") from None
    home = aws.call("s3", "get_bucket_location", Bucket=name).get("LocationConstraint") or "us-east-1"
    return {
        "arn": f"arn:aws:s3:::{name}",
        "bucketDomainName": f"{name}.s3.amazonaws.com",
        "bucketRegion": home,
        "bucketRegionalDomainName": f"{name}.s3.{home}.amazonaws.com",
        "hostedZoneId": S3_ZONES.get(home, ""),
        "id": name,
    }


BUCKET = Lookup("aws:s3/getBucket:getBucket", frozenset({"bucket"}), _bucket)
