"""`bedplate vpn status`: whether what should carry does, gateway by gateway."""

from typing import TYPE_CHECKING

from bedplate.cli.options import DEFAULT_FLEET, FleetFile, Json
from bedplate.cli.output import show, show_document
from bedplate.cli.vpn_gateways import SshConfig, ways_to
from bedplate.errors import BedplateError, InputError, PartError, ViolationError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bedplate.plan.node import NodePlan
    from vpn.keeper.status import Status
    from vpn.ssh_way import SshWay


def status(fleet: FleetFile = DEFAULT_FLEET, *, ssh_config: SshConfig = None, json: Json = False) -> int:
    """Show sessions, tunnels and days left. The exit status is 3 where something should carry and does not."""
    import time

    from bedplate.cli.opening import opened, planned
    from bedplate.plan.node import Duty
    from bedplate.plan.nodes import standing_nodes
    from bedplate.report.condition import condition_document, condition_lines
    from vpn.condition import amiss

    plan = planned(opened(fleet))
    nodes = {node.name: node for node in standing_nodes(plan) if node.duties & {Duty.LAPTOPS, Duty.TUNNELS}}
    if not nodes:
        raise InputError("the fleet has no gateway", fix="`vpn.laptops.gateways` and `sites` make some")
    with ways_to(plan, nodes.values(), ssh_config) as way:
        answers = _asked(tuple(nodes.values()), way)
    failures = {name: each for name, each in answers.items() if isinstance(each, BedplateError)}
    found = {name: each for name, each in answers.items() if not isinstance(each, BedplateError)}
    wrong = [fault for name, each in found.items() for fault in amiss(nodes[name], each, int(time.time()))]
    if json:
        show_document(condition_document(found, failures, wrong))
    else:
        show(condition_lines(found, failures, wrong))
    if any(fault.is_failing for fault in wrong):
        return ViolationError.exit_code
    return PartError.exit_code if failures else 0


def _asked(nodes: "Sequence[NodePlan]", way: "Callable[[str], SshWay]") -> "dict[str, Status | BedplateError]":
    """Ask all gateways at once, and return what each answered, or why it did not."""
    from concurrent.futures import ThreadPoolExecutor

    from vpn.condition import ASK, parse_status

    def ask(node: "NodePlan") -> "Status | BedplateError":
        try:
            return parse_status(way(node.name).run(ASK, ""))
        except BedplateError as error:
            return error

    with ThreadPoolExecutor(len(nodes)) as pool:
        return dict(zip((node.name for node in nodes), pool.map(ask, nodes), strict=True))
