"""Pools of one machine type each, and the launch templates that their pools would have."""

from typing import Any

from bedplate.catalog import load_catalog
from bedplate.plan import FleetPlan, Record, plan_fleet
from bedplate.plan.interfaces import pool_interfaces
from bedplate.plan.pool import PoolPlan
from stacks.image import image_of
from stacks.template import NodeBase, Start, template_args
from tests.support.rendered import rendered
from tests.support.sketch import group, sketch

BASE = NodeBase("arn:aws:iam::111122223333:instance-profile/lab-ssh", "sg-0123456789abcdef0")
HERE: dict[str, Any] = {"region": "us-west-2", "zone": "us-west-2a"}
BOUGHT: dict[str, dict[str, Any]] = {
    "on-demand": HERE,
    "spot": {**HERE, "market": "spot"},
    "reservation": {**HERE, "market": "reservation", "reservation": "cr-0123456789abcdef0"},
    "capacity-block": {
        **HERE,
        "market": "capacity-block",
        "reservation": "cr-0123456789abcdef1",
        "ends": "2027-01-31T11:30:00Z",
    },
}


def pooled(kind: str, market: str = "on-demand", record: Record | None = None, **parts: Any) -> FleetPlan:  # noqa: ANN401  raw values
    """Return the plan of a fleet of one pool of a type; on the fabric where the type has one."""
    facts = load_catalog().types.get(kind)
    fabric = {"fabric": "efa"} if facts is not None and facts.efa else {}
    one = group(BOUGHT[market], types=(kind,), **{**fabric, **parts})
    return plan_fleet(sketch(groups={"box": one}), record or Record({}), load_catalog())


def template_of(plan: FleetPlan, pool: PoolPlan, script: str | None = None) -> dict[str, Any]:
    """Return the inputs of a pool's launch template."""
    catalog = load_catalog()
    image = image_of(plan, pool.region, pool.types, catalog)
    start = Start(image, pool_interfaces(pool, catalog), script)
    return rendered(template_args(plan, pool, BASE, start))
