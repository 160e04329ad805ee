"""Lifecycle hooks: a new machine waits until it reports ready, a leaving one until it is drained.

A hook only waits: who reports, and how a node is drained, is the node's own matter.
"""

from dataclasses import dataclass

import pulumi
from pulumi_aws.autoscaling._inputs import GroupInitialLifecycleHookArgs
from pulumi_aws.autoscaling.lifecycle_hook import LifecycleHook, LifecycleHookArgs

from bedplate.plan.fleet import FleetPlan
from bedplate.plan.pool import PoolPlan
from bedplate.spec.group import Market
from bedplate.spec.network import Egress
from bedplate.spec.site import Use
from stacks.options import inside

READY, DRAINED = "ready", "drained"
# Below the half hour after which a group that stays short rings.
_READY_SECONDS = {Use.SSH: 1500, Use.KUBERNETES: 1200}
_DRAINED_SECONDS = {Use.SSH: 300, Use.KUBERNETES: 900}
# What EC2 leaves a spot instance between its warning and its end.
_SPOT_SECONDS = 120


@dataclass(frozen=True, slots=True)
class Hook:
    """A wait at one turn of a machine's life: `seconds` at most, and `result` when nobody has reported by then."""

    name: str
    transition: str
    seconds: int
    result: str


def pool_hooks(plan: FleetPlan, pool: PoolPlan) -> tuple[Hook, ...]:
    """Return the two waits of a pool's machines; none where they have no way to report."""
    if plan.egress is Egress.NONE:
        return ()
    left = _SPOT_SECONDS if pool.market is Market.SPOT else _DRAINED_SECONDS[pool.use]
    return ready_hook(_READY_SECONDS[pool.use]), drained_hook(left)


def member_hooks(plan: FleetPlan) -> tuple[Hook, ...]:
    """Return the wait of a machine of the control plane."""
    return () if plan.egress is Egress.NONE else (ready_hook(_READY_SECONDS[Use.KUBERNETES]),)


def ready_hook(seconds: int) -> Hook:
    """Return the wait of a new machine, which ends if it stays silent."""
    return Hook(READY, "autoscaling:EC2_INSTANCE_LAUNCHING", seconds, "ABANDON")


def drained_hook(seconds: int) -> Hook:
    """Return the wait of a leaving machine, which ends all the same if it stays silent."""
    return Hook(DRAINED, "autoscaling:EC2_INSTANCE_TERMINATING", seconds, "CONTINUE")


def first_hooks(hooks: tuple[Hook, ...]) -> list[GroupInitialLifecycleHookArgs]:
    """Return hooks as a group takes them before its first machine starts."""
    return [
        GroupInitialLifecycleHookArgs(
            name=hook.name,
            lifecycle_transition=hook.transition,
            heartbeat_timeout=hook.seconds,
            default_result=hook.result,
        )
        for hook in hooks
    ]


def keep_hooks(name: str, group: pulumi.Output[str], hooks: tuple[Hook, ...], parent: pulumi.Resource) -> None:
    """Declare the same hooks as resources, by which they change later: AWS puts a hook of the same name over it."""
    for hook in hooks:
        args = LifecycleHookArgs(
            name=hook.name,
            autoscaling_group_name=group,
            lifecycle_transition=hook.transition,
            heartbeat_timeout=hook.seconds,
            default_result=hook.result,
        )
        LifecycleHook(f"{name}-{hook.name}", args, inside(parent))
