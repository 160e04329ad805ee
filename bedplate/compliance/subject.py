"""Markers that limit compliance rules to the nodes that they apply to; the report counts the others."""

from collections.abc import Callable

import pytest
from testinfra.host import Host

from bedplate.plan.nodes import NodePlan, NodeRole

MARKER = "applies_if"


def applies_if(condition: Callable[[NodePlan], bool]) -> pytest.MarkDecorator:
    """Limit a rule to nodes whose plan meets a condition; as `pytestmark`, limit all rules of a file."""
    return pytest.MarkDecorator(pytest.Mark(MARKER, (condition,), {}, _ispytest=True), _ispytest=True)


def applies_to(*duties: NodeRole) -> pytest.MarkDecorator:
    """Limit a rule to nodes that have one of these duties."""
    return applies_if(lambda node: not node.duties.isdisjoint(duties))


def is_container(host: Host) -> bool:
    """Return whether the node is a container, which shares the kernel, clock and swap of its host."""
    return bool(host.run("systemd-detect-virt --quiet --container").succeeded)
