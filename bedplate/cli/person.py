"""The commands for the access of a person: person invite and person remove."""

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from shlex import quote
from typing import Annotated

import typer

from bedplate.catalog import load_catalog
from bedplate.cli.fleet import open_fleet, plan_loaded
from bedplate.cli.login import SshOptions
from bedplate.cli.node_apply import apply_machines, select_machines
from bedplate.cli.output import (
    DEFAULT_FLEET,
    FleetFile,
    Identity,
    PassphraseFile,
    Person,
    SshConfig,
    User,
    notify,
    show,
)
from bedplate.cli.vpn import check_endpoints, laptops_of, profile_of, revoke_laptops
from bedplate.cli.vpn_certificates import check_person
from bedplate.cli.vpn_session import keys_of, known_passphrase, now
from bedplate.cli.vpn_sync import sync
from bedplate.errors import BedplateError, InputError, PartialError, nearest_fix
from bedplate.files import try_out, write_whole
from bedplate.load import Loaded
from bedplate.lock import check_recorded, lock_path, record_plan
from bedplate.nodes.invitation import Invitation, invitation_files, machines_of, pack
from bedplate.plan import FleetPlan
from bedplate.plan.links import ssh_pools
from bedplate.report.nodes import apply_lines
from bedplate.report.person import admission_line, documents_line, entry_of, invited_lines, kept_lines, unfinished_lines
from bedplate.report.vpn import issued_lines
from vpn import signing
from vpn.authority import Reason
from vpn.certificates import DEFAULT_DEVICE, Passphrase, Subject, laptop, user_of
from vpn.pki import NoAuthority, Pki

_PEOPLE = frozenset({"people"})


def invite(  # noqa: PLR0913  one parameter an option
    name: Person,
    fleet: FleetFile = DEFAULT_FLEET,
    *,
    device: Annotated[str, typer.Option("--laptop", metavar="LAPTOP", help="The person's laptop.")] = DEFAULT_DEVICE,
    write: Annotated[
        Path | None, typer.Option("--write", metavar="FILE", help="The archive. Default: USER.zip.")
    ] = None,
    apply: Annotated[
        bool, typer.Option("--apply", help="Also update gateways, and create the account on all machines.")
    ] = False,
    user: User = None,
    identity: Identity = None,
    ssh_config: SshConfig = None,
    passphrase_file: PassphraseFile = None,
) -> int:
    """Write an archive with a person's access.

    It has a VPN profile, the ssh configuration with host keys, and instructions. Run it again after new machines.
    """
    subject, file = laptop(name, device), write or Path(f"{name}.zip")
    plan = _recorded_plan(name, fleet)
    check_endpoints(plan)
    try_out([file])
    passphrase = cache(known_passphrase(passphrase_file))
    pki = _with_certificate(plan, fleet, subject, passphrase)
    invitation = _invitation(plan, pki, subject, passphrase)
    write_whole(file, pack(invitation_files(invitation)), 0o600)
    show(invited_lines(invitation, file))
    if not apply:
        show([admission_line(name, _ssh_groups(plan), _option(fleet))])
        return 0
    failures = (
        *_errors(lambda: sync(fleet, ssh_config=ssh_config, passphrase_file=passphrase_file)),
        *_apply_people(plan, SshOptions(fleet, user, identity, ssh_config)),
    )
    show(documents_line(plan))
    notify(unfinished_lines(failures, f"bedplate person invite {name} --apply{_option(fleet)}"))
    return PartialError.exit_code if failures else 0


def _recorded_plan(name: str, fleet: Path) -> FleetPlan:
    """Return the plan, after it recorded the ids of new people. Raises InputError for other unrecorded values."""
    loaded = open_fleet(fleet, brief=True)
    check_person(name, loaded.fleet.people)
    plan = plan_loaded(loaded)
    if not (plan.new_people or plan.new_groups):
        return plan
    check_recorded((*plan.new_blocks, *plan.new_addresses), fleet)
    record_plan(lock_path(fleet), loaded.fleet, load_catalog())
    show([f"recorded in fleet.lock: {', '.join((*plan.new_people, *plan.new_groups))}"])
    return plan_loaded(loaded)


def _with_certificate(plan: FleetPlan, fleet: Path, subject: Subject, passphrase: Passphrase) -> Pki:
    """Return the keys of the fleet, after it issued a certificate to a laptop without a valid one."""
    pki = keys_of(plan.name, fleet)
    certificate = pki.certificates.current(subject.name)
    if certificate and certificate.until > now() and pki.store.read(subject.name):
        return pki
    signing.check_free_slot(pki.certificates, subject.name, [pool.block for pool in plan.laptops], now())
    show([next(issued_lines(signing.add(pki, [subject], now(), passphrase), now()))])
    return keys_of(plan.name, fleet)


def _invitation(plan: FleetPlan, pki: Pki, subject: Subject, passphrase: Passphrase) -> Invitation:
    name = user_of(subject.name)
    person = next(person for person in plan.accounts.people if person.name == name)
    profile = profile_of(plan, pki, subject.name, passphrase)
    until = pki.certificates.holders()[subject.name].until
    return Invitation(plan, person, machines_of(plan, name, load_catalog()), profile, until)


def remove(  # noqa: PLR0913  one parameter an option
    name: Annotated[str, typer.Argument(metavar="USER", help="A person, also one who is no longer in the fleet file.")],
    fleet: FleetFile = DEFAULT_FLEET,
    *,
    keep_pods: Annotated[
        bool, typer.Option("--keep-pods", help="Let running pods in the cluster go on until they end.")
    ] = False,
    user: User = None,
    identity: Identity = None,
    ssh_config: SshConfig = None,
    passphrase_file: PassphraseFile = None,
) -> int:
    """Remove a person's access.

    Revokes their laptops, ends their pods in the cluster, where nothing of theirs starts any more, and removes their
    accounts from all machines once they are deleted from the fleet file. The exit status is 6 while something is left
    that the same command does.
    """
    loaded = open_fleet(fleet, brief=True)
    plan = plan_loaded(loaded)
    laptops = _laptops(plan, fleet, name)
    _check_known(name, plan, laptops)
    failures: list[BedplateError] = []
    if laptops:
        passphrase = cache(known_passphrase(passphrase_file))
        failures += _errors(lambda: revoke_laptops(fleet, laptops, Reason.LEFT, ssh_config, passphrase))
    if plan.record.authority:
        # Slow: it imports the client of Kubernetes.
        from bedplate.cli.kube_cluster import remove_person

        failures += _errors(lambda: remove_person(fleet, plan, name, passphrase_file, keeps_pods=keep_pods))
    if name in plan.accounts.uids:
        failures.append(_still_declared(loaded, name))
    elif name in plan.accounts.departed:
        failures += _apply_people(plan, SshOptions(fleet, user, identity, ssh_config))
    options = f"{' --keep-pods' if keep_pods else ''}{_option(fleet)}"
    notify(unfinished_lines(failures, f"bedplate person remove {name}{options}"))
    show(kept_lines(plan, name))
    if name not in plan.accounts.uids:
        show(documents_line(plan))
    return PartialError.exit_code if failures else 0


def _laptops(plan: FleetPlan, fleet: Path, name: str) -> set[str]:
    """Return the laptops of a person; none for a fleet without a certificate authority."""
    try:
        return laptops_of(keys_of(plan.name, fleet), name)
    except NoAuthority:
        return set()


def _check_known(name: str, plan: FleetPlan, laptops: set[str]) -> None:
    """Raise InputError for a person who never had access."""
    people = {*plan.accounts.uids, *plan.accounts.departed}
    if name not in people and not laptops:
        message = f"no person named {name} in the fleet file, fleet.lock and fleet.pki"
        raise InputError(message, fix=nearest_fix(name, people))


def _still_declared(loaded: Loaded, name: str) -> BedplateError:
    """Return the error of a person who is in the fleet file: an apply would create the accounts again."""
    lines = loaded.path.read_text(encoding="utf-8").splitlines()
    entry = entry_of(loaded.reading.nodes, f"people.{name}", lines)
    what = f"accounts of {name} are not removed: the fleet file still declares them"
    return PartialError(what, fix=f"delete {entry} of {loaded.path}")


def _apply_people(plan: FleetPlan, options: SshOptions) -> Iterator[BedplateError]:
    """Apply the role `people` to permanent machines and to running machines of SSH groups; yield the failures."""
    machines = select_machines(plan, (), (), (), every=True)
    if groups := _ssh_groups(plan):
        try:
            machines += select_machines(plan, (), groups, (), every=False)
        except BedplateError as error:
            yield PartialError(f"running machines of {', '.join(groups)}: {error.what}", fix=error.fix)
    try:
        done = apply_machines(plan, machines, options, _PEOPLE)
    except BedplateError as error:
        yield error
        return
    show(apply_lines(done.outcomes, check=False))
    if done.interrupted:
        raise KeyboardInterrupt
    for outcome in done.outcomes:
        if not outcome.is_done:
            yield PartialError(f"accounts on {outcome.node}", fix=outcome.error.fix if outcome.error else "")


def _ssh_groups(plan: FleetPlan) -> tuple[str, ...]:
    return tuple(dict.fromkeys(pool.group for pool in ssh_pools(plan)))


def _errors(step: Callable[[], object]) -> Iterator[BedplateError]:
    """Run a step and yield its error."""
    try:
        step()
    except BedplateError as error:
        yield error


def _option(fleet: Path) -> str:
    """Return the option that names the fleet file; empty for the default."""
    return "" if fleet == DEFAULT_FLEET else f" --fleet {quote(str(fleet))}"
