"""The last step of `up`: the bundle is delivered, machines get their host keys recorded and roles applied.

An apply without a difference changes nothing, so a machine that is ready takes seconds.
"""

import time
from collections.abc import Iterator, Sequence

from bedplate.account.capacity import ScalingGroups
from bedplate.account.client import AwsClient, RegionResults, require_all
from bedplate.account.machines import LiveMachine, read_claims, read_pool_machines
from bedplate.account.session import find_instance
from bedplate.errors import BedplateError, MachineError, PartialError
from bedplate.nodes.host_keys import answering, check_plugin
from bedplate.nodes.ssh import NodeLocation
from bedplate.operate import Operator, Result, plan_and_account, plan_of
from bedplate.operate.apply import INTERRUPTED, apply_machines
from bedplate.operate.bundle import deliver_bundle
from bedplate.operate.control_plane import member_nodes, start_cluster
from bedplate.operate.login import IN_SERVICE, is_in_cloud, location_of
from bedplate.operate.trust import aws_host_key, record_aws_key
from bedplate.plan import FleetPlan
from bedplate.plan.laptops import Transport
from bedplate.plan.nodes import NodeRole, find_node, permanent_nodes
from bedplate.plan.pools import PoolPlan
from bedplate.rounds import ask_each

_WAIT, _PAUSE = 600.0, 10.0
_MAX_THREADS = 8
_LIST = "`bedplate node list --live` shows its state"


def ready_machines(operator: Operator, command: str) -> Result:
    """Configure the machines of SSH groups, laptop gateways, control plane, hub, and machines of sites that answer.

    Waits at most ten minutes until AWS runs them. `command` continues; the exit status is 6 if a machine is not ready.
    """
    plan, client = plan_and_account(operator)
    undelivered = deliver_bundle(operator, plan, client)
    machines, errors = _wait(operator, plan, client)
    errors += undelivered
    # Read again: the lock has new host keys.
    plan = plan_of(operator)
    _show_idle_groups(operator, plan, client)
    cloud = [location for machine in machines if (location := _location(operator, plan, machine))]
    reachable, unreachable = _with_path(cloud)
    errors += unreachable
    locations = [*reachable, *_of_sites(operator, plan)]
    ready: list[str] = []
    if locations:
        done = apply_machines(operator, plan, locations)
        for outcome in done.outcomes:
            if outcome.is_done:
                operator.show([f"{outcome.node}: ready, {len(outcome.changed)} changed"])
                ready.append(outcome.node)
            else:
                event = outcome.error
                what, fix = (event.words, event.fix) if event else ("stopped", "")
                errors.append(PartialError(f"{outcome.node}: {what}", fix=fix))
        if done.interrupted:
            return Result((), {"ready": ready, "not_ready": []}, INTERRUPTED)
    members = {node.name for node in member_nodes(plan_of(operator))}
    status = start_cluster(operator) if members & {location.node.name for location in reachable} else 0
    advice = f"the stacks are deployed, but some machines are not ready: run `{command}` again"
    document = {"ready": ready, "not_ready": [error.what for error in errors]}
    return Result((), document, operator.report_errors(errors, advice) or status)


def _wait(operator: Operator, plan: FleetPlan, client: AwsClient) -> tuple[list[LiveMachine], list[BedplateError]]:
    """Return the machines with a recorded host key, and the errors of the others, once all have a key or time is up."""
    until = time.monotonic() + _WAIT
    last = ""
    while True:
        results = [*_pool_machines(plan, client), *_permanent_machines(plan, client)]
        machines, errors = _with_keys(
            operator, client, [result for result in results if isinstance(result, LiveMachine)]
        )
        errors += [result for result in results if isinstance(result, BedplateError)]
        missing = [error.what for error in errors if isinstance(error, PartialError)]
        if not missing or time.monotonic() >= until:
            return machines, errors
        if (line := f"waiting: {'; '.join(missing)}") != last:
            operator.notify([last := line])
        time.sleep(_PAUSE)


def _pool_machines(plan: FleetPlan, client: AwsClient) -> Iterator[LiveMachine | BedplateError]:
    """Yield the machines of SSH groups with a name, and an error for each that is not there yet."""
    pools = _ssh_pools(plan)
    if not pools:
        return
    desired = _desired(plan, client)
    answers = read_pool_machines(client, plan, pools, read_claims(client, plan))
    yield from answers.failures.values()
    members = [
        machine for region in answers.successes.values() for machine in region if "Terminat" not in machine.state
    ]
    for machine in members:
        if machine.state != IN_SERVICE:
            yield PartialError(f"{machine.label} ({machine.instance}) is {machine.state}", fix=_LIST)
        elif machine.name is None:
            yield PartialError(f"{machine.label} ({machine.instance}) has not registered its name", fix=_LIST)
        else:
            yield machine
    for pool in pools:
        count = sum((machine.pool, machine.region) == (pool.name, pool.region) for machine in members)
        if pool.region in answers.successes and count < (desired_count := desired.get(pool.name, 0)):
            yield PartialError(f"{pool.name}: {count} of {desired_count} machines launched", fix=_LIST)


def _ssh_pools(plan: FleetPlan) -> tuple[PoolPlan, ...]:
    return tuple(pool for pool in plan.pools if pool.use.is_ssh)


def _desired(plan: FleetPlan, client: AwsClient) -> dict[str, int]:
    """Return the desired number of machines of each SSH pool; a schedule may have set it to 0."""
    groups = ScalingGroups(client, plan.name, _ssh_pools(plan))
    observation = groups.observe(time.time())
    require_all(RegionResults({}, groups.silent), "cannot read the Auto Scaling groups")
    return {pool.name: pool.desired for pool in observation.pools}


def _show_idle_groups(operator: Operator, plan: FleetPlan, client: AwsClient) -> None:
    """Show how to start a machine of each group that has none."""
    pools = _ssh_pools(plan)
    desired = _desired(plan, client) if pools else {}
    busy = {pool.group for pool in pools if desired.get(pool.name)}
    for group in dict.fromkeys(pool.group for pool in pools):
        if group not in busy:
            operator.show([f"{group}: no machine runs; start one: `bedplate node start {group}`"])


def _permanent_machines(plan: FleetPlan, client: AwsClient) -> Iterator[LiveMachine | PartialError]:
    for node in permanent_nodes(plan):
        if is_in_cloud(NodeLocation(node)):
            try:
                yield find_instance(client, plan, node)
            except PartialError as error:
                yield error


def _with_keys(
    operator: Operator, client: AwsClient, machines: Sequence[LiveMachine]
) -> tuple[list[LiveMachine], list[BedplateError]]:
    """Record missing host keys; return the machines that have one, and the errors of the others."""
    plan = plan_of(operator)
    keys, instances = plan.record.host_keys, plan.record.instances

    def has_key(machine: LiveMachine) -> bool:
        name = machine.name or ""
        return name in keys and instances.get(name, machine.instance) == machine.instance

    due = {machine.instance: machine for machine in machines if not has_key(machine)}
    read, errors = ask_each(due, lambda instance: aws_host_key(plan, client, due[instance]), _MAX_THREADS)
    operator.show(record_aws_key(operator, plan, due[instance], key) for instance, key in read.items())
    return [machine for machine in machines if machine.instance not in errors], [*errors.values()]


def _location(operator: Operator, plan: FleetPlan, machine: LiveMachine) -> NodeLocation | None:
    """Return where ssh finds a machine; None for a gateway whose addresses `vpn up` has not recorded yet."""
    if machine.group:
        return location_of(plan, machine)
    node = find_node(plan, machine.name or "", plan.catalog)
    if node.roles & {NodeRole.CONTROL, NodeRole.HUB}:
        return NodeLocation(node)
    gateway = node.laptops
    if gateway and gateway.public and gateway.name_servers(Transport.UDP):
        return NodeLocation(node)
    operator.show([f"{node.name}: runs; set it up: `bedplate vpn up`"])
    return None


def _with_path(locations: Sequence[NodeLocation]) -> tuple[list[NodeLocation], list[BedplateError]]:
    """Return the machines that ssh can reach, directly or through Session Manager, and an error for the others."""
    hosts = answering({location.host for location in locations})
    silent = [location.node.name for location in locations if location.host not in hosts]
    try:
        if silent:
            check_plugin()
    except MachineError as error:
        what = f"no path to {', '.join(silent)}: the VPN is not connected, and {error.what}"
        return [location for location in locations if location.host in hosts], [PartialError(what, fix=error.fix)]
    return [*locations], []


def _of_sites(operator: Operator, plan: FleetPlan) -> Iterator[NodeLocation]:
    """Yield the machines of sites that answer and have a recorded host key; show the command for the others."""
    machines = [NodeLocation(node) for node in permanent_nodes(plan) if not is_in_cloud(NodeLocation(node))]
    hosts = answering({machine.host for machine in machines})
    for machine in machines:
        name = machine.node.name
        if machine.host not in hosts:
            operator.show([f"{name}: does not answer; later: `bedplate node apply {name}`"])
        elif name not in plan.record.host_keys:
            operator.show([f"{name}: no recorded host key; record it: `bedplate node trust {name} SHA256:...`"])
        else:
            yield machine
