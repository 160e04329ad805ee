"""Host keys of machines are recorded in the lock: by a fingerprint, or from AWS.

The operator passes the fingerprint, or AWS reads the key from the instance. DNS records only name an instance: any
process on a machine can write them, so EC2 and its Auto Scaling group must confirm the instance. A recorded key is
replaced only if its instance has terminated, or with `replace`.
"""

from collections.abc import Iterator, Sequence

from bedplate.account.client import AwsClient
from bedplate.account.machines import (
    LiveMachine,
    find_claim,
    group_and_region,
    has_terminated,
    read_claims,
    read_pool_machines,
)
from bedplate.account.session import HostKey, confirmed, find_instance, read_host_key
from bedplate.errors import BedplateError, InputError, PartialError, ViolationError
from bedplate.files import check_files_exist
from bedplate.lock import lock_path, record_host_keys
from bedplate.nodes.host_keys import (
    fingerprint,
    parse_fingerprint,
    scan_host_keys,
    trust_instructions,
    verified_host_key,
)
from bedplate.nodes.ssh import check_groups, nodes_by_name
from bedplate.operate import Operator, open_account, plan_of
from bedplate.plan import FleetPlan
from bedplate.plan.links import ssh_pools
from bedplate.plan.nodes import NodePlan, Platform
from bedplate.rounds import ask_each

_MAX_THREADS = 8
_OTHER_KEY_AT_CONSOLE = "read the fingerprint at the console again; if it still differs, another host answers"


def trust(  # noqa: PLR0913  each is an option of the command line
    operator: Operator,
    name: str | None,
    sha256: str | None,
    groups: Sequence[str],
    address: str | None,
    *,
    replace: bool,
) -> int:
    """Record the host key of a machine, or of all machines of groups; return the exit status."""
    plan = plan_of(operator)
    if groups:
        if name:
            raise InputError(f"{name} and --group exclude each other", fix=f"leave out {name} or --group")
        return _trust_groups(operator, plan, groups, replace=replace)
    if name is None:
        raise InputError("no machine selected", fix="name a machine or pass --group; see `bedplate node list`")
    (node,) = nodes_by_name(plan, [name], plan.catalog)
    if sha256:
        _trust_fingerprint(operator, plan, node, sha256, address, replace=replace)
        return 0
    if option := "--address" if address else "--ssh-config" if operator.ssh_config else "":
        raise InputError(f"{option} requires a fingerprint", fix=f"pass the fingerprint, or leave out {option}")
    trust_instance(operator, plan, node, replace=replace)
    return 0


def _trust_fingerprint(  # noqa: PLR0913  each is an option of the command line
    operator: Operator, plan: FleetPlan, node: NodePlan, sha256: str, address: str | None, *, replace: bool
) -> None:
    """Record the key with a fingerprint that the machine offers at its planned address, or at this one."""
    expected = parse_fingerprint(sha256)
    check_files_exist(operator.ssh_config)
    planned = node.name if operator.ssh_config else str(node.address or node.full_name)
    offered = scan_host_keys(address or planned, operator.ssh_config)
    key = verified_host_key(node.name, offered, (expected,), _OTHER_KEY_AT_CONSOLE)
    record_host_keys(lock_path(operator.fleet), plan.name, node.name, (key,), replace_known=replace)
    operator.show([f"recorded in fleet.lock: {node.name} has host key {expected}"])


def trust_instance(operator: Operator, plan: FleetPlan, node: NodePlan, *, replace: bool = False) -> None:
    """Record the key that AWS reads from the instance of a machine."""
    if node.platform is not Platform.CLOUD:
        raise InputError(f"AWS does not know the host key of {node.name}", fix=trust_instructions(node))
    client = open_account(plan)
    machine = find_instance(client, plan, node)
    host_key = aws_host_key(plan, client, machine, replace_known=replace)
    operator.show([record_aws_key(operator, plan, machine, host_key)])


def aws_host_key(plan: FleetPlan, client: AwsClient, machine: LiveMachine, *, replace_known: bool = False) -> HostKey:
    """Return the host key that AWS reads from a named instance.

    Raises ViolationError if it would replace the recorded key of an instance that exists.
    """
    host_key = read_host_key(client, machine)
    if not replace_known:
        _check_replacement(plan, client, machine, host_key.key)
    return host_key


def _check_replacement(plan: FleetPlan, client: AwsClient, machine: LiveMachine, key: str) -> None:
    name = machine.name or ""
    recorded = plan.record.host_keys.get(name, ())
    if not recorded or recorded == (key,):
        return
    instance = plan.record.instances.get(name)
    if instance is None:
        what = f"{name} has another recorded host key, of an unknown instance"
        raise ViolationError(what, fix=f"if its group replaced the machine: `bedplate node trust {name} --replace`")
    if not has_terminated(client, machine.region, instance):
        what = f"{name} has another recorded host key, of {instance}, which has not terminated"
        fix = f"compare the fingerprint at the console, then `bedplate node trust {name} SHA256:... --replace`"
        raise ViolationError(what, fix=fix)


def record_aws_key(operator: Operator, plan: FleetPlan, machine: LiveMachine, host_key: HostKey) -> str:
    """Record a key of `aws_host_key` and return the line for the operator."""
    name = machine.name or ""
    previous = plan.record.host_keys.get(name, ())
    record_host_keys(lock_path(operator.fleet), plan.name, name, (host_key.key,), machine.instance, replace_known=True)
    replaced = "".join(f", replacing {fingerprint(other)}" for other in previous if other != host_key.key)
    line = f"recorded in fleet.lock: {name} has host key {fingerprint(host_key.key)}{replaced}"
    return f"{line} (read from {host_key.source})"


def _trust_groups(operator: Operator, plan: FleetPlan, groups: Sequence[str], *, replace: bool) -> int:
    """Record the keys of all named machines of these groups; return the exit status.

    A machine that fails does not stop the others.
    """
    _check_groups(plan, groups)
    pools = [pool for pool in ssh_pools(plan) if pool.group in groups]
    places = {(pool.group, pool.region) for pool in pools}
    client = open_account(plan)
    claims = read_claims(client, plan)
    names = sorted({claim.name for claim in claims if group_and_region(claim.name) in places})
    answers = read_pool_machines(client, plan, pools, claims)

    def ask(name: str) -> tuple[LiveMachine, HostKey]:
        region = group_and_region(name)[1]
        if region in answers.failures:
            raise answers.failures[region]
        machine = confirmed(find_claim(claims, name), answers.successes[region])
        return machine, aws_host_key(plan, client, machine, replace_known=replace)

    keys, failures = ask_each(names, ask, _MAX_THREADS)
    operator.show(record_aws_key(operator, plan, *key) for key in keys.values())
    operator.notify(line for name, error in failures.items() for line in _failure_lines(name, error))
    codes = {error.exit_code for error in failures.values()}
    if ViolationError.exit_code in codes:
        return ViolationError.exit_code
    return PartialError.exit_code if codes else 0


def _check_groups(plan: FleetPlan, groups: Sequence[str]) -> None:
    check_groups(plan, groups)
    ssh_groups = {pool.group for pool in ssh_pools(plan)}
    for group in groups:
        if group not in ssh_groups:
            fix = f"name a group with `use: ssh`: {', '.join(sorted(ssh_groups)) or 'the fleet has none'}"
            raise InputError(f"machines of {group} have no names in the fleet", fix=fix)


def _failure_lines(name: str, error: BedplateError) -> Iterator[str]:
    yield f"{name}: {error.what.removeprefix(f'{name} ')}"
    yield f"  fix  {error.fix}"
