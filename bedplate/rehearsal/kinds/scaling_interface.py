"""The interfaces that an Auto Scaling group's machine takes over, where its launch template names any.

Source: Auto Scaling API reference, CreateAutoScalingGroup, and EC2 user guide, launch template restrictions.
"""

from collections.abc import Collection, Mapping
from typing import Any

from bedplate.rehearsal.kind import Props
from bedplate.rehearsal.kinds.described import NETWORK_INTERFACE, described
from bedplate.rehearsal.refusal import Refusal
from bedplate.rehearsal.simulation import Aws


def interfaces(aws: Aws, data: Mapping[str, Any], inputs: Props, zones: Collection[str]) -> list[dict[str, Any]]:
    """Return the interfaces that launch data names, as EC2 describes them; refuse a group they do not fit."""
    named = [nic["NetworkInterfaceId"] for nic in data.get("NetworkInterfaces") or [] if nic.get("NetworkInterfaceId")]
    if not named:
        return []
    if inputs.get("vpcZoneIdentifiers"):
        told = "a launch template that names a network interface goes with availability zones, not with subnets"
        raise Refusal("ValidationError", told, key="vpcZoneIdentifiers")
    if inputs["maxSize"] > 1:
        told = f"{named[0]} serves one machine at a time, and the group may have {inputs['maxSize']}"
        raise Refusal("ValidationError", told, key="maxSize")
    found = [described(aws, NETWORK_INTERFACE, ident) for ident in named]
    for interface in found:
        if interface["AvailabilityZone"] not in zones:
            told = f"{interface['NetworkInterfaceId']} is in {interface['AvailabilityZone']}, not in the group's zones"
            raise Refusal("ValidationError", told, key="availabilityZones")
    return found
