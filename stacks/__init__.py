"""What AWS holds, as three kinds of Pulumi stack: `shared`, one a region, and `links`.

Programs and components only place what the plan has decided: no address is computed, nothing is looked up in AWS. A
name comes from the plan's content (region, zone, pool, store), never from a position: adding or removing one thing
touches no other. Regions read `shared`, `links` reads the regions, and regions never read each other. The reason for
each setting that is not AWS's own default stands in docs/choices.md.

Resources are imported from the SDK's leaf modules and take Args classes all the way down: only so does the type
checker see a misspelt key.
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

# The SDK loads a package on first use; one whose leaf module is imported before that lacks the leaf's classes for
# good, and a program in the same process that asks the package for them fails. Use each, then.
for _package in (
    *(autoscaling, budgets, cloudwatch, ec2, ec2transitgateway, efs, iam),
    *(kms, route53, s3, secretsmanager, sns, ssm, vpc),
):
    hasattr(_package, "outputs")
