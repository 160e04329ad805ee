"""The type checker sees into the SDK, so a misspelt key is found before anything runs."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAM = """
from pulumi_aws.ec2._inputs import LaunchTemplateMetadataOptionsArgs
from pulumi_aws.ec2.vpc import VpcArgs

VpcArgs({vpc}="10.0.0.0/16")
LaunchTemplateMetadataOptionsArgs({metadata}="required")
"""


@pytest.mark.parametrize(
    ("vpc", "metadata", "told"),
    [
        ("cidr_block", "http_tokens", "Success"),
        ("cidr_blok", "http_tokens", 'did you mean "cidr_block"?'),
        ("cidr_block", "http_token", 'did you mean "http_tokens"?'),
    ],
)
def test_a_misspelt_key_is_found(vpc: str, metadata: str, told: str, tmp_path: Path) -> None:
    """At the top of a resource and in what is nested in it."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM.format(vpc=vpc, metadata=metadata), encoding="utf-8")

    command = [sys.executable, "-m", "mypy", "--cache-dir", str(tmp_path / "cache"), str(program)]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    assert told in ran.stdout
