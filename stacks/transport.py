"""The policies of buckets and file systems that shut out clear text and old TLS."""

from stacks.arn import bucket_arn
from stacks.policy import Conditions, Statement, policy

OLDEST_TLS = "1.2"


def only_by_tls(bucket: str) -> tuple[Statement, Statement]:
    """Return what makes a bucket's policy refuse all but TLS 1.2 or newer."""
    return (
        _deny(bucket, "RefuseClearText", {"Bool": {"aws:SecureTransport": ("false",)}}),
        _deny(bucket, "RefuseOldTls", {"NumericLessThan": {"s3:TlsVersion": (OLDEST_TLS,)}}),
    )


def mounts_only_by_tls(system_arn: str) -> str:
    """Return the policy of a file system that nobody mounts in clear text.

    It allows nobody: so a mount needs an identity that its own policy allows to, as the nodes' role does.
    """
    refusal = Statement(
        sid="RefuseClearText",
        effect="Deny",
        principals={"AWS": ("*",)},
        actions=("*",),
        resources=(system_arn,),
        conditions={"Bool": {"aws:SecureTransport": ("false",)}},
    )
    return policy(refusal)


def _deny(bucket: str, sid: str, conditions: Conditions) -> Statement:
    return Statement(
        sid=sid,
        effect="Deny",
        principals={"AWS": ("*",)},
        actions=("s3:*",),
        resources=(bucket_arn(bucket), f"{bucket_arn(bucket)}/*"),
        conditions=conditions,
    )
