"""`bedplate vpn status`: whether what should carry does, gateway by gateway, by the plan and the keys."""

from bedplate.cli.options import DEFAULT_FLEET, FleetFile, Json
from bedplate.cli.output import show, show_document
from bedplate.cli.vpn_gateways import SshConfig, ask_gateways
from bedplate.cli.vpn_opening import newest_list
from bedplate.errors import BedplateError, InputError, PartError, ViolationError


def status(fleet: FleetFile = DEFAULT_FLEET, *, ssh_config: SshConfig = None, json: Json = False) -> int:
    """Show sessions, tunnels and days left. The exit status is 3 where something should carry and does not."""
    import time

    from bedplate.cli.opening import opened, planned
    from bedplate.plan.node import Duty
    from bedplate.plan.nodes import standing_nodes
    from bedplate.report.condition import condition_document, condition_lines
    from vpn.condition import amiss
    from vpn.wanted import wanted

    plan = planned(opened(fleet))
    nodes = {node.name: node for node in standing_nodes(plan) if node.duties & {Duty.LAPTOPS, Duty.TUNNELS}}
    if not nodes:
        raise InputError("the fleet has no gateway", fix="`vpn.laptops.gateways` and `sites` make some")
    answers = ask_gateways(plan, tuple(nodes.values()), ssh_config)
    failures = {name: each for name, each in answers.items() if isinstance(each, BedplateError)}
    found = {name: each for name, each in answers.items() if not isinstance(each, BedplateError)}
    number, now = newest_list(plan.name, fleet), int(time.time())
    due = {name: wanted(plan, node, number) for name, node in nodes.items()}
    wrong = [fault for name, each in found.items() for fault in amiss(nodes[name], due[name], each, now)]
    if json:
        show_document(condition_document(found, failures, wrong))
    else:
        show(condition_lines(found, failures, wrong))
    if any(fault.is_failing for fault in wrong):
        return ViolationError.exit_code
    return PartError.exit_code if failures else 0
