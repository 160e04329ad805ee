"""Tags of Auto Scaling groups: labels and taints are told there too, and AWS limits how many and how long."""

from collections.abc import Iterator

from bedplate.catalog import Catalog
from bedplate.checks.evidence import Evidence
from bedplate.checks.fault import Fault
from bedplate.checks.label import marks
from bedplate.checks.pools import planned_pools
from bedplate.checks.rules import fault
from bedplate.plan.from_zero import LABEL, from_zero_tags
from bedplate.plan.pool import PoolPlan
from bedplate.plan.registration import pool_registration
from bedplate.spec.site import Use

# AWS tag naming limits and EC2 Auto Scaling quotas.
MOST_TAGS, LONGEST_KEY = 50, 128
# What every machine of a pool is tagged with: fleet, stack, owner, name, group, pool, use, expiry.
NODE_TAGS = 8


def check_tags(evidence: Evidence) -> Iterator[Fault]:
    """Tell workers whose labels and taints would be too long or too many as tags."""
    for name, pools in planned_pools(evidence).items():
        key, group = f"groups.{name}", evidence.fleet.groups[name]
        if group.use is not Use.KUBERNETES:
            continue
        yield from _long(marks(key, group))
        count = max((tag_count(evidence.fleet.name, pool, evidence.catalog) for pool in pools), default=0)
        if count > MOST_TAGS:
            place = f"{key}.labels" if group.labels else f"{key}.taints"
            yield fault("E339", place, f"its pools would have {count} tags; AWS takes {MOST_TAGS}")


def tag_count(fleet: str, pool: PoolPlan, catalog: Catalog) -> int:
    """Return how many tags a pool of workers has, were it to expire."""
    return NODE_TAGS + len(from_zero_tags(fleet, pool_registration(pool, catalog)))


def _long(named: Iterator[tuple[str, str]]) -> Iterator[Fault]:
    for place, mark in named:
        if len(LABEL + mark) > LONGEST_KEY:
            message = f"{mark} has {len(mark)} characters; as a tag it may have {LONGEST_KEY - len(LABEL)}"
            yield fault("E339", place, message)
