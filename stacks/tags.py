"""Tags: what says whose a resource is, and which fleet, stack, group and pool it belongs to."""

from bedplate.plan.fleet import FleetPlan
from bedplate.plan.pool import PoolPlan
from stacks.names import stack_name

FLEET = "bedplate:fleet"
STACK = "bedplate:stack"
GROUP = "bedplate:group"
POOL = "bedplate:pool"
USE = "bedplate:use"
MEMBER = "bedplate:member"
OWNER = "owner"
EXPIRES = "expires"


def stack_tags(plan: FleetPlan, part: str) -> dict[str, str]:
    """Return the tags of everything in a stack, which its provider puts on."""
    return {FLEET: plan.name, STACK: stack_name(plan, part), OWNER: plan.owner}


def named(name: str) -> dict[str, str]:
    """Return the tag by which AWS's console calls a resource."""
    return {"Name": name}


def node_tags(plan: FleetPlan, pool: PoolPlan) -> dict[str, str]:
    """Return the tags of a pool's machines and of all they are made with: no provider reaches those."""
    own = {GROUP: pool.group, POOL: pool.name, USE: pool.use.value, OWNER: pool.tenure.owner}
    term = {EXPIRES: pool.tenure.expires} if pool.tenure.expires else {}
    return stack_tags(plan, pool.region) | named(f"{plan.name}-{pool.name}") | own | term
