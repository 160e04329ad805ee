"""The commands about machines that do not log in to any: node list, bootstrap, ssh-config and trust.

`node trust` records the host keys of machines in the lock. The operator passes the fingerprint, or AWS does: a machine
publishes its fingerprint and instance id in the private DNS zone. Any process on a machine can write to that zone, so
EC2 and the Auto Scaling group must confirm the record. A recorded key is replaced only if its instance has terminated,
or with --replace.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from ipaddress import IPv4Address
from pathlib import Path
from typing import Annotated

import typer

from bedplate.account.client import AwsClient, failure_lines
from bedplate.account.machines import (
    Claim,
    Machine,
    find_claim,
    has_terminated,
    read_claims,
    read_machines,
    read_pool_machines,
)
from bedplate.catalog import load_catalog
from bedplate.cli.fleet import open_account, plan_of
from bedplate.cli.output import (
    DEFAULT_FLEET,
    FleetOption,
    Identity,
    Json,
    SshConfig,
    check_files_exist,
    notify,
    show,
    show_document,
)
from bedplate.errors import BedplateError, InputError, PartialError, ViolationError
from bedplate.hold import login_name
from bedplate.lock import lock_path, record_host_keys
from bedplate.nodes.choice import bootstrap_script, check_groups, nodes_by_name
from bedplate.nodes.host_keys import (
    fingerprint,
    known_hosts,
    parse_fingerprint,
    publishes_host_key,
    scan_host_keys,
    trust_instructions,
    verified_host_key,
)
from bedplate.nodes.ssh import FILE_HEADER, Login, NodeLocation, login_account, ssh_config
from bedplate.plan import FleetPlan
from bedplate.plan.links import ssh_pools
from bedplate.plan.nodes import NodePlan, permanent_nodes, pool_nodes
from bedplate.report.nodes import LiveFacts, machine_document, machine_lines, node_document, node_lines
from bedplate.writer import os_errors_as_machine_errors, write_together


def list_nodes(
    *,
    live: Annotated[bool, typer.Option("--live", help="Ask AWS for the running machines of groups instead.")] = False,
    fleet: FleetOption = DEFAULT_FLEET,
    json: Json = False,
) -> int:
    """Show the fleet's machines."""
    plan = plan_of(fleet)
    return _list_running(plan, json=json) if live else _list_planned(plan, json=json)


def _list_planned(plan: FleetPlan, *, json: bool) -> int:
    permanent, pooled = permanent_nodes(plan), tuple(pool_nodes(plan, load_catalog()))
    keys = plan.record.host_keys
    if json:
        nodes = [*((node, True) for node in permanent), *((node, False) for node in pooled)]
        show_document(node_document(nodes, keys))
    else:
        show(node_lines(permanent, pooled, keys))
    return 0


def _list_running(plan: FleetPlan, *, json: bool) -> int:
    answers = read_machines(open_account(plan), plan)
    running = [machine for region in answers.given.values() for machine in region]
    facts = LiveFacts(datetime.now(UTC), {pool.name: pool for pool in plan.pools}, load_catalog())
    if json:
        show_document(machine_document(running, plan.record.host_keys, facts))
    else:
        show(machine_lines(running, plan.record.host_keys, facts))
    notify(f"unknown machines: {line}" for line in failure_lines(answers.failures))
    return PartialError.exit_code if answers.failures else 0


def bootstrap(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A machine of a site, such as titan-01.cellar.")],
    *,
    fleet: FleetOption = DEFAULT_FLEET,
) -> int:
    """Print a machine's first-boot script."""
    (node,) = nodes_by_name(plan_of(fleet), [name], load_catalog())
    show(bootstrap_script(node).splitlines())
    return 0


_KNOWN_HOSTS = "known_hosts"
_DEFAULT_CONFIG = Path("~/.ssh/bedplate")
LoginName = Annotated[
    str | None,
    typer.Option("--user", metavar="USER", help="Login name. Default: yours if the fleet file has it, else ubuntu."),
]


def show_ssh_config(
    *,
    write: Annotated[
        Path | None, typer.Option("--write", metavar="FILE", help="Write to FILE, and host keys to FILE.known_hosts.")
    ] = None,
    user: LoginName = None,
    identity: Identity = None,
    fleet: FleetOption = DEFAULT_FLEET,
) -> int:
    """Print OpenSSH settings for the fleet."""
    plan = plan_of(fleet)
    check_files_exist(identity)
    nodes = (*permanent_nodes(plan), *pool_nodes(plan, load_catalog()))
    file = (write or _DEFAULT_CONFIG).expanduser().absolute()
    keys_file, keys = _known_hosts_of(file), known_hosts(nodes, plan.record.host_keys).encode()
    config = ssh_config((NodeLocation(node) for node in nodes), keys_file, _login(plan, user, identity))
    if write is None:
        show(config.splitlines())
        notify(_unwritten_key_lines(file, keys))
    else:
        _check_overwrite(file)
        write_together({keys_file: keys, file: config.encode()})
        notify([f"wrote {file} and {keys_file.name}; add at the top of ~/.ssh/config: Include {file}"])
    notify(_untrusted_lines(plan, nodes))
    return 0


def _known_hosts_of(config: Path) -> Path:
    return config.with_name(f"{config.name}.{_KNOWN_HOSTS}")


def _login(plan: FleetPlan, user: str | None, identity: Path | None) -> Login:
    """Return the login name and key. A note goes to stderr if the operator is not in the fleet file."""
    operator = login_name()
    name = user or login_account(plan.accounts, operator)
    if not user and name != operator:
        notify([f"note: no person named {operator} in the fleet file; ssh logs in as {name} (change it with --user)"])
    return Login(name, identity and identity.absolute())


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


_IN_SERVICE = "InService"
_MAX_THREADS = 8
_OTHER_KEY_AT_CONSOLE = "read the fingerprint at the console again; if it still differs, another host answers"
_OTHER_KEY_IN_ZONE = (
    "another host answers, or the key was regenerated after the first boot: "
    "compare in a Session Manager session, or let the group replace the machine"
)
_WRONG_RECORD = "find the machine that wrote the record, delete the records, and let the group replace the machine"


def trust(  # noqa: PLR0913  each is an option of the command line
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="A machine, such as titan-01.cellar.")] = None,
    sha256: Annotated[
        str | None,
        typer.Argument(metavar="SHA256:...", help="Fingerprint from the machine's console. Default: ask AWS."),
    ] = None,
    *,
    group: Annotated[
        list[str] | None, typer.Option("--group", metavar="GROUP", help="All running machines of a group; repeatable.")
    ] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace the recorded key of a reinstalled machine.")
    ] = False,
    address: Annotated[
        str | None, typer.Option(metavar="HOST[:PORT]", help="Connect to this address instead of the planned one.")
    ] = None,
    ssh_config: SshConfig = None,
    fleet: FleetOption = DEFAULT_FLEET,
) -> int:
    """Record a machine's host key."""
    plan = plan_of(fleet)
    if group:
        if name:
            raise InputError(f"{name} and --group exclude each other", fix=f"leave out {name} or --group")
        return _trust_groups(fleet, plan, group, replace_known=replace)
    if name is None:
        raise InputError("no machine selected", fix="name a machine or pass --group; see `bedplate node list`")
    (node,) = nodes_by_name(plan, [name], load_catalog())
    if sha256:
        expected = parse_fingerprint(sha256)
        check_files_exist(ssh_config)
        planned = node.name if ssh_config else str(node.address or node.full_name)
        offered = scan_host_keys(address or planned, ssh_config)
        key = verified_host_key(node.name, offered, (expected,), _OTHER_KEY_AT_CONSOLE)
        record_host_keys(lock_path(fleet), plan.name, node.name, (key,), replace_known=replace)
        show([f"recorded in fleet.lock: {node.name} has host key {expected}"])
        return 0
    if option := "--address" if address else "--ssh-config" if ssh_config else "":
        raise InputError(f"{option} requires a fingerprint", fix=f"pass the fingerprint, or leave out {option}")
    if not publishes_host_key(node):
        raise InputError(f"AWS does not know the host key of {node.name}", fix=trust_instructions(node))
    account = _Account(plan, open_account(plan))
    claim = find_claim(account.claims(), node.name)
    account = account.with_machines({_group_and_region(node.name)}, (claim,))
    show([_record(fleet, plan, claim, account.host_key(claim, replace_known=replace))])
    return 0


def _trust_groups(fleet: Path, plan: FleetPlan, groups: Sequence[str], *, replace_known: bool) -> int:
    """Record the keys of all named machines of these groups. A machine that fails does not stop the others."""
    _check_groups(plan, groups)
    places = {(pool.group, pool.region) for pool in ssh_pools(plan) if pool.group in groups}
    account = _Account(plan, open_account(plan))
    all_claims = account.claims()
    names = sorted({claim.name for claim in all_claims if _group_and_region(claim.name) in places})
    account = account.with_machines(places, all_claims)

    def ask(name: str) -> tuple[Claim, str] | BedplateError:
        try:
            claim = find_claim(all_claims, name)
            return claim, account.host_key(claim, replace_known=replace_known)
        except BedplateError as error:
            return error

    with ThreadPoolExecutor(_MAX_THREADS) as pool:
        answers = dict(zip(names, pool.map(ask, names), strict=True))
    show(_record(fleet, plan, *answer) for answer in answers.values() if isinstance(answer, tuple))
    failures = {name: answer for name, answer in answers.items() if isinstance(answer, BedplateError)}
    notify(line for name, error in failures.items() for line in _failure_lines(name, error))
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


def _group_and_region(name: str) -> tuple[str, str]:
    """Return ("box", "us-west-2") for box-1.us-west-2."""
    host, _, region = name.partition(".")
    return host.rpartition("-")[0], region


def _record(fleet: Path, plan: FleetPlan, claim: Claim, key: str) -> str:
    """Record the key and return the line for the operator."""
    previous = plan.record.host_keys.get(claim.name, ())
    record_host_keys(lock_path(fleet), plan.name, claim.name, (key,), claim.instance, replace_known=True)
    replaced = "".join(f", replacing {fingerprint(other)}" for other in previous if other != key)
    return f"recorded in fleet.lock: {claim.name} has host key {fingerprint(key)}{replaced}"


def _failure_lines(name: str, error: BedplateError) -> Iterator[str]:
    yield f"{name}: {error.what.removeprefix(f'{name} ')}"
    yield f"  fix  {error.fix}"


@dataclass(frozen=True, slots=True)
class _Account:
    """What AWS reports about the machines of some groups."""

    plan: FleetPlan
    client: AwsClient
    machines: Mapping[str, Machine] | None = None
    """By instance id."""
    failures: Mapping[str, BedplateError] | None = None
    """By region that did not answer."""

    def claims(self) -> tuple[Claim, ...]:
        """Return the names that machines have registered in the private zones."""
        return read_claims(self.client, self.plan)

    def with_machines(self, places: Collection[tuple[str, str]], of: Iterable[Claim]) -> "_Account":
        """Ask for the machines of these groups, each with a region."""
        pools = [pool for pool in self.plan.pools if (pool.group, pool.region) in places]
        answers = read_pool_machines(self.client, self.plan, pools, of)
        machines = {machine.instance: machine for region in answers.given.values() for machine in region}
        return _Account(self.plan, self.client, machines, answers.failures)

    def host_key(self, claim: Claim, *, replace_known: bool) -> str:
        """Return the key that the instance offers at its address, if its fingerprint is the one in the zone.

        Raises ViolationError if EC2 contradicts the zone, or if the key would replace that of a living instance.
        """
        key = verified_host_key(
            claim.name, scan_host_keys(str(self._address(claim))), claim.fingerprints, _OTHER_KEY_IN_ZONE
        )
        if not replace_known:
            self._check_replacement(claim.name, key)
        return key

    def _address(self, claim: Claim) -> IPv4Address:
        """Return the address of the instance that the name's records refer to. EC2 must confirm it."""
        group, region = _group_and_region(claim.name)
        if self.failures and region in self.failures:
            raise self.failures[region]
        machine = (self.machines or {}).get(claim.instance)
        if machine is None or (machine.group, machine.region) != (group, region):
            what = f"the TXT record of {claim.name} names {claim.instance}, which is no instance of {group} in {region}"
            raise ViolationError(what, fix=_WRONG_RECORD)
        if machine.state != _IN_SERVICE:
            what = f"{claim.name} ({claim.instance}) is not in service: {machine.state}"
            raise PartialError(what, fix="run the command again when `bedplate node list --live` shows InService")
        if machine.address is None or claim.address != machine.address:
            what = f"the A record of {claim.name} is {claim.address}, but {claim.instance} has {machine.address}"
            raise ViolationError(what, fix=_WRONG_RECORD)
        return machine.address

    def _check_replacement(self, name: str, key: str) -> None:
        """Raise ViolationError if another key is recorded, unless its instance has terminated."""
        recorded = self.plan.record.host_keys.get(name, ())
        if not recorded or recorded == (key,):
            return
        instance = self.plan.record.instances.get(name)
        if instance is None:
            what = f"{name} has another recorded host key, of an unknown instance"
            raise ViolationError(what, fix=f"if its group replaced the machine: `bedplate node trust {name} --replace`")
        if not has_terminated(self.client, _group_and_region(name)[1], instance):
            what = f"{name} has another recorded host key, of {instance}, which has not terminated"
            fix = f"compare the fingerprint at the console, then `bedplate node trust {name} SHA256:... --replace`"
            raise ViolationError(what, fix=fix)
