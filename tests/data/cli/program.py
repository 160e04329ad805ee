"""A program that is no part of bedplate: one bucket with a name of its own, and a parameter that tells it."""

import pulumi
from pulumi_aws.s3 import Bucket
from pulumi_aws.ssm import Parameter

print("a program may print")  # noqa: T201 - that this does not reach stdout is what a test looks for
bucket = Bucket("results", bucket="lab-results-example")
Parameter("bucket-name", type="String", value=bucket.bucket)
pulumi.export("bucket", bucket.bucket)
pulumi.export("names", ["a", "b"])
pulumi.export("password", pulumi.Output.secret("correct horse"))
