"""The fleet's machines: their list, starts and stops of those of groups, first-boot scripts, settings of OpenSSH."""

import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from bedplate.account.capacity import (
    WAIT,
    Clock,
    Progress,
    Request,
    ScalingGroups,
    console_output,
    start_machines,
    terminate_machine,
)
from bedplate.account.client import AwsClient, failure_lines
from bedplate.account.machines import LiveMachine, read_claims, read_machines, read_node_statuses, read_pool_machines
from bedplate.bundle import targets
from bedplate.capacity.observation import NOT_READY
from bedplate.capacity.shrink import parse_duration
from bedplate.errors import BedplateError, InputError, PartialError
from bedplate.files import check_files_exist, login_name, os_errors_as_machine_errors, write_together
from bedplate.nodes.bootstrap import site_script
from bedplate.nodes.host_keys import known_hosts
from bedplate.nodes.ssh import (
    FILE_HEADER,
    NodeLocation,
    check_groups,
    nodes_by_name,
    ssh_config,
)
from bedplate.operate import Operator, Result, open_account, plan_of
from bedplate.operate.login import interactive_login, is_in_cloud, with_proxy
from bedplate.operate.site_folder import script_name, site_files, write_folder
from bedplate.operate.terminations import people_on
from bedplate.plan import FleetPlan
from bedplate.plan.nodes import NodePlan, permanent_nodes, pool_nodes
from bedplate.plan.planner import baked_image
from bedplate.plan.pools import PoolPlan, next_stop, own_end
from bedplate.report import capacity as report
from bedplate.report.nodes import LiveFacts, age_of, machine_document, machine_lines, node_document, node_lines


def list_nodes(operator: Operator, *, is_live: bool) -> Result:
    """Return the fleet's machines, or with `is_live` the running machines of groups that AWS reports."""
    plan = plan_of(operator)
    return _running(plan) if is_live else _planned(plan)


def _planned(plan: FleetPlan) -> Result:
    permanent, pooled = permanent_nodes(plan), tuple(pool_nodes(plan, plan.catalog))
    keys = plan.record.host_keys
    nodes = [*((node, True) for node in permanent), *((node, False) for node in pooled)]
    return Result(node_lines(permanent, pooled, keys), node_document(nodes, keys))


def _running(plan: FleetPlan) -> Result:
    client = open_account(plan)
    answers = read_machines(client, plan)
    running = [machine for region in answers.successes.values() for machine in region]
    owners = {region: {machine.instance for machine in machines} for region, machines in answers.successes.items()}
    status = read_node_statuses(client, plan, {region: owned for region, owned in owners.items() if owned})
    facts = LiveFacts(
        datetime.now(UTC),
        {pool.name: pool for pool in plan.pools},
        plan.catalog,
        {instance: node_status for region in status.successes.values() for instance, node_status in region.items()},
        {pool.name: image for pool in plan.pools if (image := baked_image(plan, pool, plan.catalog))},
    )
    notes = (
        *(f"unknown machines: {line}" for line in failure_lines(answers.failures)),
        *(f"unknown status: {line}" for line in failure_lines(status.failures)),
    )
    keys = plan.record.host_keys
    document = machine_document(running, keys, facts)
    return Result(machine_lines(running, keys, facts), document, PartialError.exit_code if notes else 0, notes)


def first_boot(operator: Operator, name: str, folder: Path | None, pythons: Sequence[str]) -> Result:
    """Return a machine's first-boot script; with a folder, write it there with a bundle and a cloud-init seed."""
    plan = plan_of(operator)
    (node,) = nodes_by_name(plan, [name], plan.catalog)
    script = site_script(node)
    if folder is None:
        return Result(script.splitlines())
    write_folder(folder, site_files(node, targets(tuple(pythons))))
    return Result([f"wrote {folder}; on {node.name}, as root: `bash {script_name(node)}`"])


_KNOWN_HOSTS = "known_hosts"
_DEFAULT_CONFIG = Path("~/.ssh/bedplate")


def write_settings(operator: Operator, write: Path | None) -> Result:
    """Return OpenSSH settings for the fleet; with a file, write them there, with host keys beside it."""
    plan = plan_of(operator)
    check_files_exist(operator.identity)
    nodes = (*permanent_nodes(plan), *pool_nodes(plan, plan.catalog))
    file = (write or _DEFAULT_CONFIG).expanduser().absolute()
    keys_file, keys = _known_hosts_of(file), known_hosts(nodes, plan.record.host_keys).encode()
    machines = map(NodeLocation, nodes)
    paths = (with_proxy(machine, operator.fleet) if is_in_cloud(machine) else machine for machine in machines)
    config = ssh_config(paths, keys_file, interactive_login(operator, plan))
    untrusted = tuple(_untrusted_lines(plan, nodes))
    if write is None:
        return Result(config.splitlines(), notes=(*_unwritten_key_lines(file, keys), *untrusted))
    _check_overwrite(file)
    write_together({keys_file: keys, file: config.encode()})
    written = f"wrote {file} and {keys_file.name}; add at the top of ~/.ssh/config: Include {file}"
    return Result((), notes=(written, *untrusted))


def _known_hosts_of(config: Path) -> Path:
    return config.with_name(f"{config.name}.{_KNOWN_HOSTS}")


def _unwritten_key_lines(config: Path, keys: bytes) -> Iterator[str]:
    """Yield a note if the host keys that the printed settings refer to are not in their file."""
    keys_file = _known_hosts_of(config)
    if keys_file.is_file():
        with os_errors_as_machine_errors(keys_file, "read"):
            if keys_file.read_bytes() == keys:
                return
    yield f"note: {keys_file} does not hold the host keys; ssh refuses every machine without them"
    yield f"  fix  `bedplate node ssh-config --write {config}` writes both files"


def _untrusted_lines(plan: FleetPlan, nodes: Sequence[NodePlan]) -> Iterator[str]:
    untrusted = sum(node.name not in plan.record.host_keys for node in nodes)
    if untrusted:
        yield f"{untrusted} of {len(nodes)} machines have no recorded host key: record it with `bedplate node trust`"


def _check_overwrite(file: Path) -> None:
    """Raise InputError for a file that bedplate did not write, such as the operator's ~/.ssh/config."""
    if not file.is_file():
        return
    with os_errors_as_machine_errors(file, "read"):
        content = file.read_bytes()
    if content and not content.startswith(FILE_HEADER.encode()):
        fix = "write to a separate file, such as ~/.ssh/bedplate, and Include it"
        raise InputError(f"bedplate did not write {file} and does not overwrite it", fix=fix)


_EXCERPT = 15


def start(operator: Operator, group: str, count: int, duration: str | None) -> None:
    """Start machines of a group until `count` of them run, for a duration or without an end.

    Raises PartialError if fewer run.
    """
    plan = plan_of(operator)
    check_groups(plan, [group])
    pools = {pool.name: pool for pool in sorted(plan.pools, key=lambda pool: pool.rung) if pool.group == group}
    now = datetime.now(UTC)
    _check_count(group, next(iter(pools.values())).group_spec.nodes.max, count)
    until = now + parse_duration(duration) if duration else None
    request = Request(count, login_name(), dict(_ends(operator, pools, until, now)))
    client = open_account(plan)
    groups = ScalingGroups(client, plan.name, tuple(pools.values()))
    progress = _follow(operator, groups, request, pools)
    if progress.ready < count:
        raise _shortage(operator, client, pools, progress, count)
    answers = read_pool_machines(client, plan, pools.values(), read_claims(client, plan))
    ready = {machine.id for machine in progress.observation.machines if machine.ready}
    machines = [machine for region in answers.successes.values() for machine in region if machine.instance in ready]
    ends = {pool: end.until for pool, end in progress.ends.items()}
    operator.show(report.running_lines(machines, pools, ends))
    cancelled = {pool: end.until for pool, end in progress.cancelled.items()}
    unlimited = {machine.pool for machine in machines} & request.until.keys() - ends.keys() if until else set()
    operator.notify(report.end_lines(cancelled, sorted(unlimited)))
    operator.notify(f"unknown names: {line}" for line in failure_lines(answers.failures))


def _check_count(group: str, most: int, count: int) -> None:
    """Raise InputError for more machines than the group may have."""
    if count > most:
        fix = f"write {most}, or raise `groups.{group}.nodes.max`"
        raise InputError(f"{group} has at most {most} machines, not {count}", fix=fix)


def _ends(
    operator: Operator, pools: Mapping[str, PoolPlan], until: datetime | None, now: datetime
) -> Iterator[tuple[str, datetime | None]]:
    """Yield the end for each pool; none for a pool whose machines the fleet file ends earlier."""
    for name, pool in pools.items():
        stop = next_stop(pool, now)
        if until and stop and stop <= until:
            end = f"{stop.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
            operator.notify([f"note: the fleet file stops {name} at {end}, before --for ends"])
        else:
            yield name, until and own_end(pool, until)


def _follow(operator: Operator, groups: ScalingGroups, request: Request, pools: Mapping[str, PoolPlan]) -> Progress:
    """Report the progress of a start and return the last one. After an error or Ctrl-C say what is still launching."""
    last: Progress | None = None
    try:
        for progress in start_machines(groups, request, Clock(time.time, time.sleep)):
            before = last.observation if last else None
            last = progress
            if before is None:
                operator.notify(report.undeployed_lines(progress.observation, pools, groups.silent))
            operator.notify(report.progress_lines(before, progress.observation, progress.decision, pools))
            if before:
                operator.notify(_boot_failures(groups.client, pools, before.activities, progress))
    except (KeyboardInterrupt, BedplateError):
        if last:
            operator.notify(
                report.interrupted_lines(pools[next(iter(pools))].group, last.observation, last.decision, pools)
            )
        raise
    if last is None:
        raise AssertionError
    return last


def _boot_failures(
    client: AwsClient, pools: Mapping[str, PoolPlan], earlier_launches: tuple[object, ...], progress: Progress
) -> Iterator[str]:
    for launch in progress.observation.activities:
        if launch.code == NOT_READY and launch.machine and launch not in earlier_launches:
            yield from _console_lines(client, pools[launch.pool].region, launch.machine)


def _console_lines(client: AwsClient, region: str, instance: str) -> Iterator[str]:
    """Yield the end of an instance's console output, or the error of the question: it is only an explanation."""
    try:
        lines = console_output(client, region, instance, _EXCERPT)
    except BedplateError as error:
        lines = (error.what,)
    yield f"console of {instance}:{'' if lines else ' no output yet'}"
    yield from (f"  | {line}" for line in lines)


def _shortage(
    operator: Operator, client: AwsClient, pools: Mapping[str, PoolPlan], progress: Progress, count: int
) -> PartialError:
    """Report why a start has ended early and return its error."""
    booting = [machine for machine in progress.observation.machines if not machine.ready]
    summary = f"{progress.ready} of {count} machines of {pools[next(iter(pools))].group} run"
    if not booting and progress.decision.missing:
        operator.notify(report.rung_lines(progress.decision, pools))
        return PartialError(
            f"{summary}: no rung has room for {progress.decision.missing}", fix=report.shortage_fix(progress.decision)
        )
    for machine in booting:
        operator.notify(_console_lines(client, pools[machine.pool].region, machine.id))
    if booting:
        ids = ", ".join(machine.id for machine in booting)
        what = f"{summary}: {ids} not in service after {WAIT / 60:.0f} minutes"
        return PartialError(what, fix=f"read the console output; `bedplate node stop {booting[0].id}` ends it")
    fix = "see the activity history of its Auto Scaling groups"
    return PartialError(f"{summary}: AWS launched no machine in {WAIT / 60:.0f} minutes", fix=fix)


def stop(operator: Operator, name: str) -> None:
    """Terminate a machine of a group, by its name or instance id, after a confirmation; its group does not replace it.

    Raises InputError for gateways, and machines of sites and of the control plane.
    """
    plan = plan_of(operator)
    name = name.removesuffix(f".{plan.domain}")
    _check_is_pooled(plan, name)
    client = open_account(plan)
    machine = _live_machine(client, plan, name)
    pool = next(pool for pool in plan.pools if pool.name == machine.pool)
    if machine.state.startswith("Terminat"):
        operator.show([f"{name} is terminating already"])
        return
    groups = ScalingGroups(client, plan.name, (pool,))
    desired = _desired_above_minimum(groups, machine)
    operator.show(report.stop_lines(machine, f"up {age_of(machine, datetime.now(UTC))}", people_on(plan, machine)))
    operator.confirm("terminate it?")
    terminate_machine(client, machine.region, machine.instance)
    groups.forget_end(pool.name, desired - 1)
    operator.show([f"terminating {name}"])


def _check_is_pooled(plan: FleetPlan, name: str) -> None:
    """Raise InputError for a machine that no group can start again."""
    node = next((node for node in permanent_nodes(plan) if name in (node.name, node.host, node.full_name)), None)
    if node:
        fix = "name a machine of a group; `bedplate node list --live` shows them"
        raise InputError(f"{node.name} is a permanent machine ({', '.join(sorted(node.roles)) or 'site'})", fix=fix)


def _live_machine(client: AwsClient, plan: FleetPlan, name: str) -> LiveMachine:
    """Return the machine of a name or an instance id. Raises PartialError if a region did not answer."""
    answers = read_machines(client, plan)
    machines = [machine for region in answers.successes.values() for machine in region]
    for machine in machines:
        if name in (machine.label, machine.instance):
            return machine
    for line in failure_lines(answers.failures):
        raise PartialError(f"{name} is unknown: {line}", fix="run the command again")
    names = ", ".join(machine.label for machine in machines)
    raise InputError(
        f"no running machine of a group is named {name}", fix=f"name one of {names}" if names else "none runs"
    )


def _desired_above_minimum(groups: ScalingGroups, machine: LiveMachine) -> int:
    """Return the desired capacity of a machine's pool; InputError at the minimum, where AWS would replace it."""
    (pool,) = groups.observe(0).pools
    if pool.desired <= pool.min:
        region = machine.region
        fix = f"lower `groups.{machine.group}.nodes.min` below {pool.min}, then run `bedplate up --stack {region}`"
        raise InputError(f"{machine.pool} is at its minimum of {pool.min}: AWS would replace the machine", fix=fix)
    return pool.desired
