"""All AWS resources of a fleet, as Pulumi stacks: `shared`, one stack for each region, and `links`.

Components declare the plan: they compute no address and look up nothing in AWS. Resource names come
from the plan (region, zone, pool, store), never from a position, so adding one thing changes no other. Regions read
outputs of `shared`, `links` reads outputs of the regions, and regions never read each other. docs/choices.md gives the
reason for each setting that is not the default of AWS.

Resources are imported from the leaf modules of the SDK, with Args classes for all blocks, so that the
type checker finds misspelt keys.
"""

from pulumi_aws import (
    autoscaling,
    budgets,
    cloudwatch,
    ec2,
    ec2transitgateway,
    efs,
    iam,
    kms,
    route53,
    s3,
    secretsmanager,
    sns,
    ssm,
    vpc,
)

# The SDK loads its packages lazily. A package whose leaf module is imported first never gets the classes of the leaf,
# and another program in the same process fails to find them there. Using each package here prevents that.
for _package in (
    *(autoscaling, budgets, cloudwatch, ec2, ec2transitgateway, efs, iam),
    *(kms, route53, s3, secretsmanager, sns, ssm, vpc),
):
    hasattr(_package, "outputs")
