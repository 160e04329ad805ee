"""Which node gets which roles: a pure function of its plan, in the order in which they take effect."""

from collections.abc import Iterator

from bedplate.plan.node import NodePlan
from roles.base import Role
from roles.baseline.role import Baseline


def roles_of(node: NodePlan) -> tuple[Role, ...]:
    """Return the roles of a node, each told only what it needs."""
    return tuple(_roles(node))


def _roles(node: NodePlan) -> Iterator[Role]:
    yield Baseline(host=node.host)
