"""Names by which people and machines call what the fleet runs, below its domain; this never asks a name server."""

from bedplate.plan.fleet import FleetPlan, Member
from bedplate.plan.pool import PoolPlan, together
from bedplate.spec.site import Use

API_PORT = 6443


def api_name(plan: FleetPlan) -> str:
    """Return the name of the Kubernetes API, which leads to every machine of the control plane."""
    return f"kubernetes.{plan.domain}"


def short_name(member: Member) -> str:
    """Return the name of a machine of the control plane without its place: `control-1`."""
    return member.name.partition(".")[0]


def ssh_pools(plan: FleetPlan) -> tuple[PoolPlan, ...]:
    """Return the first pool in each region of each group that people log in to: names go by group and region."""
    found: dict[tuple[str, str], PoolPlan] = {}
    for pool in plan.pools:
        if pool.use is Use.SSH:
            found.setdefault((pool.group, pool.region), pool)
    return tuple(found.values())


def ssh_name(plan: FleetPlan, pool: PoolPlan, number: int) -> str:
    """Return the name of one of the machines that people log in to: `workbench-gpu-1.us-west-2.lab.internal`."""
    return f"{pool.group}-{number}.{pool.region}.{plan.domain}"


def highest(plan: FleetPlan, pool: PoolPlan) -> int:
    """Return the highest number of a pool's machines: all pools of its group in its region share the names."""
    place = (pool.group, pool.region)
    return together([pool, *(one for one in plan.pools if (one.group, one.region) == place and one.name != pool.name)])


def ssh_patterns(plan: FleetPlan, pool: PoolPlan) -> tuple[str, ...]:
    """Return patterns that hold the names of a pool's machines, a `?` a digit of the highest number."""
    digits = range(1, len(str(highest(plan, pool))) + 1)
    return tuple(f"{pool.group}-{'?' * count}.{pool.region}.{plan.domain}" for count in digits)
