"""What looking at the schema does to the SDK's packages."""

import subprocess
import sys

import pytest

LOOK = "from bedplate.rehearsal import schema; from bedplate.rehearsal.kinds import KINDS; "
EVERY = "[schema.resource_class(token) for token in KINDS]; "
USE = "import pulumi_aws as aws; aws.iam.Role, aws.ec2.Vpc, aws.s3.Bucket, aws.autoscaling.Group"
LEAF = "from pulumi_aws.iam.role import Role; schema.resource_class('aws:iam/role:Role')"


@pytest.mark.parametrize("code", [LOOK + EVERY + USE, LOOK + LEAF], ids=["package", "leaf"])
def test_a_program_may_import_the_sdk_as_it_likes(code: str) -> None:
    """Whoever loads a package first, the classes are there for both the program and the schema."""
    subprocess.run([sys.executable, "-c", code], check=True)
