"""Whether EC2 would start a scaling group's machines: their interfaces, their placement, the tags of what is made.

EC2 says it at each launch, and the group tries for ever; the rehearsal says it when the group is made.
"""

from collections.abc import Collection, Mapping
from typing import Any

from bedplate.rehearsal.kind import Props
from bedplate.rehearsal.kinds.launch_cards import misfit
from bedplate.rehearsal.kinds.launch_placement import misplaced, unsupported
from bedplate.rehearsal.simulation import Aws

_REQUEST = "spot-instances-request"


def unstartable(
    aws: Aws, inputs: Props, data: Mapping[str, Any], types: Collection[str], zones: Collection[str]
) -> str:
    """Return why no machine of launch data would start for a group's inputs; nothing where it would."""
    own = inputs.get("placementGroup")
    group = own or (data.get("Placement") or {}).get("GroupName")
    cards = [each for each in data.get("NetworkInterfaces") or [] if not each.get("NetworkInterfaceId")]
    reasons = [_overtagged(inputs, data), misplaced(aws, data, own, zones)]
    # What EC2 describes of a type is looked up only for what may be wrong with it.
    if group or len(cards) > 1 or any(each.get("InterfaceType") or each.get("NetworkCardIndex") for each in cards):
        for facts in _described(aws, types):
            reasons += [misfit(facts, cards), unsupported(aws, facts, group)]
    return next((reason for reason in reasons if reason), "")


def _described(aws: Aws, types: Collection[str]) -> list[dict[str, Any]]:
    wanted = [{"Name": "instance-type", "Values": sorted(types)}]
    found: list[dict[str, Any]] = aws.call("ec2", "describe_instance_types", Filters=wanted)["InstanceTypes"]
    return found


def _overtagged(inputs: Props, data: Mapping[str, Any]) -> str:
    """Tell tags of spot requests where none is made: EC2 API reference, RunInstances, TagSpecification."""
    tagged = {each.get("ResourceType") for each in data.get("TagSpecifications") or []}
    spread = (inputs.get("mixedInstancesPolicy") or {}).get("instancesDistribution") or {}
    share = spread.get("onDemandPercentageAboveBaseCapacity")
    mixed = share is not None and share < 100  # noqa: PLR2004  # per cent
    if _REQUEST in tagged and not mixed and (data.get("InstanceMarketOptions") or {}).get("MarketType") != "spot":
        return f"It tags {_REQUEST}, and a launch on demand makes none"
    return ""
