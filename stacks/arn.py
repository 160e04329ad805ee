"""ARNs of what the plan names, known before any of it exists."""

from bedplate.plan.fleet import FleetPlan


def arn(plan: FleetPlan, service: str, region: str, resource: str) -> str:
    """Return the ARN of a resource in the fleet's account; `region` is empty for a global service."""
    return f"arn:aws:{service}:{region}:{plan.account}:{resource}"


def bucket_arn(bucket: str) -> str:
    """Return the ARN of a bucket: its name says it all."""
    return f"arn:aws:s3:::{bucket}"


def root_arn(plan: FleetPlan) -> str:
    """Return the ARN by which a resource's policy leaves the matter to the account's own IAM policies."""
    return arn(plan, "iam", "", "root")
