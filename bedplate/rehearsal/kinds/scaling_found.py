"""An Auto Scaling group that something else names."""

from bedplate.rehearsal.refusal import Refusal
from bedplate.rehearsal.simulation import Aws


def require_group(aws: Aws, name: str) -> None:
    """Refuse what names a group that is not there."""
    call = {"AutoScalingGroupNames": [name]}
    if not aws.call("autoscaling", "describe_auto_scaling_groups", **call)["AutoScalingGroups"]:
        raise Refusal("ValidationError", f"AutoScalingGroup name not found: {name}", key="autoscalingGroupName")
