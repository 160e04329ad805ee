"""The command node trust: record the host keys of machines in the lock.

The operator passes the fingerprint, or AWS does: a machine publishes its fingerprint and instance id in the private
DNS zone. Any process on a machine can write to that zone, so EC2 and the Auto Scaling group must confirm the record. A
recorded key is replaced only if its instance has terminated, or with --replace.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from ipaddress import IPv4Address
from pathlib import Path
from typing import Annotated

import typer

from bedplate.account.client import AwsClient
from bedplate.account.machines import Claim, Machine, find_claim, has_terminated, read_claims, read_pool_machines
from bedplate.catalog import load_catalog
from bedplate.cli.account import open_account
from bedplate.cli.fleet import plan_of
from bedplate.cli.output import DEFAULT_FLEET, FleetOption, notify, show
from bedplate.errors import BedplateError, InputError, PartialError, ViolationError
from bedplate.lock import lock_path, record_host_keys
from bedplate.nodes.choice import check_groups, nodes_by_name
from bedplate.nodes.host_keys import (
    fingerprint,
    parse_fingerprint,
    publishes_host_key,
    scan_host_keys,
    trust_instructions,
    verified_host_key,
)
from bedplate.plan import FleetPlan
from bedplate.plan.links import ssh_pools

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
        str | None, typer.Option(metavar="ADDRESS", help="Connect to this address instead of the planned one.")
    ] = None,
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
        offered = scan_host_keys(address or str(node.address or node.full_name))
        key = verified_host_key(node.name, offered, (expected,), _OTHER_KEY_AT_CONSOLE)
        record_host_keys(lock_path(fleet), plan.name, node.name, (key,), replace_known=replace)
        show([f"recorded in fleet.lock: {node.name} has host key {expected}"])
        return 0
    if address:
        raise InputError("--address requires a fingerprint", fix="pass the fingerprint, or leave out --address")
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
