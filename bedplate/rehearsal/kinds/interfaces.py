"""Network interfaces of this region, asked for by what they hold."""

from typing import Any

from bedplate.rehearsal.simulation import Aws


def interfaces_of(aws: Aws, name: str, value: str) -> list[dict[str, Any]]:
    """Return the interfaces that a filter of EC2 finds, such as those of a `subnet-id`."""
    wanted = [{"Name": name, "Values": [value]}]
    found: list[dict[str, Any]] = aws.call("ec2", "describe_network_interfaces", Filters=wanted)["NetworkInterfaces"]
    return found


def taken_addresses(aws: Aws, subnet: str) -> set[str]:
    """Return the addresses of a subnet that interfaces have."""
    there = interfaces_of(aws, "subnet-id", subnet)
    return {each["PrivateIpAddress"] for found in there for each in found["PrivateIpAddresses"]}
