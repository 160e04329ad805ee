"""Host keys that AWS tells and the machine offers, taken into the lock: what `bedplate node trust` does by itself.

A key that the lock held before gives way: AWS has told that another machine has the name now.
"""

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from bedplate.account.claims import Claim, claim_of, claims
from bedplate.account.door import check_account, open_door
from bedplate.cli.output import show, tell
from bedplate.errors import BedplateError, InputError, PartError, ViolationError
from bedplate.lock import lock_path, record_host_keys
from bedplate.nodes.choice import check_groups
from bedplate.nodes.host_key import fingerprint
from bedplate.nodes.introduction import introduction, tells_its_key
from bedplate.nodes.scan import offered_keys
from bedplate.nodes.vouched import vouched
from bedplate.plan import FleetPlan
from bedplate.plan.hostnames import ssh_pools
from bedplate.plan.node import NodePlan

_AT_A_TIME = 8
_NOT_THE_ONE = (
    "somebody else answers in its place, or its key was made anew since it first started: "
    "compare in a session of Systems Manager, or let its group replace it"
)


def one_trusted(fleet: Path, plan: FleetPlan, node: NodePlan, address: str | None) -> int:
    """Take the key of one machine; raises InputError where AWS knows none, and as AWS and the machine answer."""
    if not tells_its_key(node):
        raise InputError(f"AWS knows no host key of {node.name}", fix=introduction(node))
    claim = claim_of(_claims(plan), node.name)
    show([_recorded(fleet, plan, claim.name, _key(claim, address))])
    return 0


def group_trusted(fleet: Path, plan: FleetPlan, groups: Sequence[str]) -> int:
    """Take the keys of all machines of groups that have a name now; one that fails keeps none from the others."""
    _check(plan, groups)
    places = {(pool.group, pool.region) for pool in ssh_pools(plan) if pool.group in groups}
    told = _claims(plan)
    names = sorted({claim.name for claim in told if _place(claim.name) in places})
    with ThreadPoolExecutor(_AT_A_TIME) as pool:
        found = dict(zip(names, pool.map(lambda name: _asked(told, name), names), strict=True))
    show(_recorded(fleet, plan, name, key) for name, key in found.items() if isinstance(key, str))
    failures = {name: error for name, error in found.items() if isinstance(error, BedplateError)}
    tell(line for name, error in failures.items() for line in _failure(name, error))
    return _status(failures.values())


def _claims(plan: FleetPlan) -> tuple[Claim, ...]:
    door = open_door()
    check_account(door, plan.account, plan.home.name)
    return claims(door, plan)


def _key(claim: Claim, address: str | None = None) -> str:
    """Return the key that a machine offers at the address that AWS tells, by the fingerprint that AWS tells."""
    at = address or str(claim.address or claim.name)
    return vouched(claim.name, offered_keys(at), claim.fingerprints, _NOT_THE_ONE)


def _asked(told: Iterable[Claim], name: str) -> str | BedplateError:
    try:
        return _key(claim_of(told, name))
    except BedplateError as error:
        return error


def _recorded(fleet: Path, plan: FleetPlan, name: str, key: str) -> str:
    before = plan.record.host_keys.get(name, ())
    record_host_keys(lock_path(fleet), plan.name, name, (key,), replace_known=True)
    former = "".join(f", no longer by {fingerprint(each)}" for each in before if each != key)
    return f"recorded in fleet.lock: {name} is known by {fingerprint(key)}{former}"


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
