"""What the tags of a group say of a node that is not there yet, so that the cluster-autoscaler may start the first.

It says what a node registers, in the autoscaler's spelling; it decides nothing.
Source: cluster-autoscaler, cloudprovider/aws/README.md, "Auto-discovery setup" and "Scaling a node group to 0".
"""

from collections.abc import Mapping

from bedplate.plan.registration import Registration

AUTOSCALER = "k8s.io/cluster-autoscaler"
ENABLED = f"{AUTOSCALER}/enabled"
LABEL, TAINT, RESOURCE = (f"{AUTOSCALER}/node-template/{word}/" for word in ("label", "taint", "resources"))
# A tag names one taint a key: of several, the one that keeps most pods away says it.
_EFFECTS = ("PreferNoSchedule", "NoSchedule", "NoExecute")


def from_zero_tags(fleet: str, told: Registration) -> dict[str, str]:
    """Return the tags by which the autoscaler of a fleet finds a group, and knows what its nodes will be."""
    return {
        ENABLED: "true",
        f"{AUTOSCALER}/{fleet}": "owned",
        **_under(LABEL, told.labels),
        **_under(TAINT, _taints(told.taints)),
        **_under(RESOURCE, told.resources),
    }


def _under(prefix: str, values: Mapping[str, str]) -> dict[str, str]:
    return {f"{prefix}{key}": value for key, value in values.items()}


def _taints(taints: tuple[str, ...]) -> dict[str, str]:
    """Return `value:effect` by key."""
    parted = sorted((taint.rpartition(":") for taint in taints), key=lambda parts: _EFFECTS.index(parts[2]))
    keyed = ((*name.partition("="), effect) for name, _, effect in parted)
    return {key: f"{value}:{effect}" for key, _, value, effect in keyed}
