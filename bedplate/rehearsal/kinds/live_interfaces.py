"""Network interfaces that are in use; moto keeps those of terminated instances, which AWS deletes with them."""

from typing import Any

from bedplate.rehearsal.simulation import Aws

_GONE = frozenset({"shutting-down", "terminated"})


def live_interfaces(aws: Aws, name: str, value: str) -> list[dict[str, Any]]:
    """Return the interfaces that a filter of EC2 finds, such as those of a `subnet-id`."""
    wanted = [{"Name": name, "Values": [value]}]
    found = aws.call("ec2", "describe_network_interfaces", Filters=wanted)["NetworkInterfaces"]
    gone = _terminated(aws, {str(holder) for each in found if (holder := _holder(each))})
    return [each for each in found if _holder(each) not in gone]


def taken_addresses(aws: Aws, subnet: str) -> set[str]:
    """Return the addresses of a subnet that interfaces in use have."""
    there = live_interfaces(aws, "subnet-id", subnet)
    return {each["PrivateIpAddress"] for found in there for each in found["PrivateIpAddresses"]}


def _holder(interface: dict[str, Any]) -> str | None:
    holder: str | None = (interface.get("Attachment") or {}).get("InstanceId")
    return holder


def _terminated(aws: Aws, instances: set[str]) -> set[str]:
    if not instances:
        return set()
    told = aws.call("ec2", "describe_instances", InstanceIds=sorted(instances))["Reservations"]
    every = [instance for reservation in told for instance in reservation["Instances"]]
    return {instance["InstanceId"] for instance in every if instance["State"]["Name"] in _GONE}
