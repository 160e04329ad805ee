"""What a public address is good for only with: an internet gateway of its VPC."""

from bedplate.rehearsal.refusal import Refusal
from bedplate.rehearsal.simulation import Aws


def require_way_out(aws: Aws, vpc: str, key: str) -> None:
    """Refuse a public address, asked for under an input, in a VPC that has no internet gateway."""
    there = [{"Name": "attachment.vpc-id", "Values": [vpc]}]
    if not aws.call("ec2", "describe_internet_gateways", Filters=there)["InternetGateways"]:
        raise Refusal("Gateway.NotAttached", f"Network {vpc} has no Internet gateway attached", key=key)
