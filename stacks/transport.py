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
    """Return the policy of a file system that whoever reaches a mount target of it mounts, and nobody in clear text.

    Any policy takes the place of EFS's own, which lets everybody in: what it does not allow is refused. Root stays
    root, for nodes make the homes of people. Source: EFS user guide, "Using IAM to control file system data access".
    """
    everybody, whole = {"AWS": ("*",)}, (system_arn,)
    mounting = Statement(
        sid="MountFromTheNetwork",
        principals=everybody,
        actions=tuple(f"elasticfilesystem:Client{right}" for right in ("Mount", "RootAccess", "Write")),
        resources=whole,
        conditions={"Bool": {"elasticfilesystem:AccessedViaMountTarget": ("true",)}},
    )
    refusal = Statement(
        sid="RefuseClearText",
        effect="Deny",
        principals=everybody,
        actions=("*",),
        resources=whole,
        conditions={"Bool": {"aws:SecureTransport": ("false",)}},
    )
    return policy(mounting, refusal)


def _deny(bucket: str, sid: str, conditions: Conditions) -> Statement:
    return Statement(
        sid=sid,
        effect="Deny",
        principals={"AWS": ("*",)},
        actions=("s3:*",),
        resources=(bucket_arn(bucket), f"{bucket_arn(bucket)}/*"),
        conditions=conditions,
    )
