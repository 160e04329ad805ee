"""Which nodes a rule is about: one that does not concern a node is not run for it, and the report counts it."""

from collections.abc import Callable

import pytest
from testinfra.host import Host

from bedplate.plan.nodes import Duty, NodePlan

Concern = Callable[[NodePlan], bool]
MARK = "concerns"


def concerns(has: Concern) -> pytest.MarkDecorator:
    """Limit a rule, or as `pytestmark` all rules of a file, to nodes whose plan has what it is about."""
    return pytest.MarkDecorator(pytest.Mark(MARK, (has,), {}, _ispytest=True), _ispytest=True)


def on_duty(*duties: Duty) -> pytest.MarkDecorator:
    """Limit a rule to nodes that have one of these duties."""
    return concerns(lambda node: not node.duties.isdisjoint(duties))


def is_contained(host: Host) -> bool:
    """Tell whether it is a container, whose kernel, clock and swap are its host's."""
    return bool(host.run("systemd-detect-virt --quiet --container").succeeded)
