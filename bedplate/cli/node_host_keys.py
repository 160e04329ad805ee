"""Host keys that AWS tells and the machine offers, recorded in the lock: what `bedplate node trust` does by itself.

The records of the zone must agree with EC2 and the Auto Scaling groups. A key that the lock holds is replaced when its
instance has terminated, or with --replace.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from ipaddress import IPv4Address
from pathlib import Path

from bedplate.account.client import Door, check_account, open_door
from bedplate.account.machines import Claim, Machine, claim_of, claims, has_terminated, machines_of
from bedplate.cli.node_choice import IN_SERVICE
from bedplate.cli.output import show, tell
from bedplate.errors import BedplateError, InputError, PartError, ViolationError
from bedplate.lock import lock_path, record_host_keys
from bedplate.nodes.choice import check_groups
from bedplate.nodes.host_keys import fingerprint, introduction, offered_keys, tells_its_key, vouched
from bedplate.plan import FleetPlan
from bedplate.plan.links import ssh_pools
from bedplate.plan.nodes import NodePlan

_AT_A_TIME = 8
_FORGED = "find out which machine wrote the record, delete the name's records, and let the group replace the machine"
_NOT_THE_ONE = (
    "somebody else answers in its place, or its key was made anew since it first started: "
    "compare in a session of Systems Manager, or let its group replace it"
)


@dataclass(frozen=True, slots=True)
class _Account:
    """What the account says of the machines that have names: which there are, and where."""

    door: Door
    machines: Mapping[str, Machine]
    """By instance."""
    failures: Mapping[str, BedplateError]
    """By region."""


def one_trusted(fleet: Path, plan: FleetPlan, node: NodePlan, *, replace_known: bool) -> int:
    """Record the key of one machine; raises InputError where AWS knows none, and as AWS and the machine answer."""
    if not tells_its_key(node):
        raise InputError(f"AWS knows no host key of {node.name}", fix=introduction(node))
    door = _opened(plan)
    claim = claim_of(claims(door, plan), node.name)
    account = _account(door, plan, {_place(node.name)}, (claim,))
    show([_recorded(fleet, plan, claim, _key(plan, account, claim, replace_known=replace_known))])
    return 0


def group_trusted(fleet: Path, plan: FleetPlan, groups: Sequence[str], *, replace_known: bool) -> int:
    """Record the keys of all machines of groups that have a name now; one that fails keeps none from the others."""
    _check(plan, groups)
    places = {(pool.group, pool.region) for pool in ssh_pools(plan) if pool.group in groups}
    door = _opened(plan)
    told = claims(door, plan)
    names = sorted({claim.name for claim in told if _place(claim.name) in places})
    account = _account(door, plan, places, told)

    def ask(name: str) -> tuple[Claim, str] | BedplateError:
        try:
            claim = claim_of(told, name)
            return claim, _key(plan, account, claim, replace_known=replace_known)
        except BedplateError as error:
            return error

    with ThreadPoolExecutor(_AT_A_TIME) as pool:
        found = dict(zip(names, pool.map(ask, names), strict=True))
    show(_recorded(fleet, plan, *each) for each in found.values() if isinstance(each, tuple))
    failures = {name: error for name, error in found.items() if isinstance(error, BedplateError)}
    tell(line for name, error in failures.items() for line in _failure(name, error))
    return _status(failures.values())


def _opened(plan: FleetPlan) -> Door:
    door = open_door()
    check_account(door, plan.account, plan.home.name)
    return door


def _account(door: Door, plan: FleetPlan, places: Collection[tuple[str, str]], told: Iterable[Claim]) -> _Account:
    """Return what AWS says of the machines of some groups, each in a region."""
    pools = [pool for pool in plan.pools if (pool.group, pool.region) in places]
    answers = machines_of(door, plan, pools, told)
    found = {machine.instance: machine for each in answers.given.values() for machine in each}
    return _Account(door, found, answers.failures)


def _key(plan: FleetPlan, account: _Account, claim: Claim, *, replace_known: bool) -> str:
    """Return the key that the instance of a name offers at its own address, by the fingerprint in the zone.

    Every process of a machine may write to the zone, so that nothing in it is believed but what EC2 says, too. Raises
    ViolationError where they differ, and where the key would replace that of another instance that still exists.
    """
    address = _address(account, claim)
    key = vouched(claim.name, offered_keys(str(address)), claim.fingerprints, _NOT_THE_ONE)
    if not replace_known:
        _refuse_replacement(plan, account, claim.name, key)
    return key


def _address(account: _Account, claim: Claim) -> IPv4Address:
    """Return the address of the instance that a name's records tell of, which EC2 must confirm."""
    group, region = _place(claim.name)
    if region in account.failures:
        raise account.failures[region]
    machine = account.machines.get(claim.instance)
    if machine is None or (machine.group, machine.region) != (group, region):
        what = (
            f"{claim.name} belongs to {claim.instance} by its TXT record, which is no instance of {group} in {region}"
        )
        raise ViolationError(what, fix=_FORGED)
    if machine.state != IN_SERVICE:
        what = f"{claim.name} ({claim.instance}) is not in service: {machine.state}"
        raise PartError(what, fix="run the command again once `bedplate node list --live` shows it in service")
    if machine.address is None or claim.address != machine.address:
        what = f"{claim.name} has the A record {claim.address}, and {claim.instance} has the address {machine.address}"
        raise ViolationError(what, fix=_FORGED)
    return machine.address


def _refuse_replacement(plan: FleetPlan, account: _Account, name: str, key: str) -> None:
    """Raise ViolationError where another key is recorded, unless its instance has terminated."""
    before = plan.record.host_keys.get(name, ())
    if not before or before == (key,):
        return
    former = plan.record.instances.get(name)
    if former is None:
        what = f"{name} has another host key recorded, of an unknown instance"
        raise ViolationError(what, fix=f"`bedplate node trust {name} --replace`, if its group replaced the machine")
    if not has_terminated(account.door, _place(name)[1], former):
        what = f"{name} has another host key recorded, of {former}, which has not terminated"
        raise ViolationError(
            what, fix=f"compare the key in a session, then `bedplate node trust {name} SHA256:... --replace`"
        )


def _recorded(fleet: Path, plan: FleetPlan, claim: Claim, key: str) -> str:
    before = plan.record.host_keys.get(claim.name, ())
    record_host_keys(lock_path(fleet), plan.name, claim.name, (key,), claim.instance, replace_known=True)
    former = "".join(f", no longer by {fingerprint(each)}" for each in before if each != key)
    return f"recorded in fleet.lock: {claim.name} is known by {fingerprint(key)}{former}"


def _check(plan: FleetPlan, groups: Sequence[str]) -> None:
    check_groups(plan, groups)
    named = {pool.group for pool in ssh_pools(plan)}
    for group in groups:
        if group not in named:
            fix = "machines that people log in to have names: those of " + (", ".join(sorted(named)) or "no group")
            raise InputError(f"machines of {group} take no names of the fleet", fix=fix)


def _place(name: str) -> tuple[str, str]:
    """Return the group and the region of a name."""
    host, _, region = name.partition(".")
    return host.rpartition("-")[0], region


def _failure(name: str, error: BedplateError) -> Iterator[str]:
    yield f"{name}: {error.what.removeprefix(f'{name} ')}"
    yield f"  fix  {error.fix}"


def _status(failures: Iterable[BedplateError]) -> int:
    codes = {error.exit_code for error in failures}
    if ViolationError.exit_code in codes:
        return ViolationError.exit_code
    return PartError.exit_code if codes else 0
