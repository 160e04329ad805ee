"""Access of people: profiles and revocations of their laptops, invitations, and removal from everything."""

from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from shlex import quote

from cryptography.x509 import load_pem_x509_certificate

from bedplate.errors import BedplateError, InputError, MachineError, PartialError, nearest_fix
from bedplate.files import try_out, write_whole
from bedplate.folder.files import FLEET_FILE
from bedplate.load import Loaded
from bedplate.lock import check_recorded, lock_path, record_plan
from bedplate.nodes.host_keys import trust_instructions
from bedplate.nodes.invitation import Invitation, invitation_files, machines_of, pack
from bedplate.nodes.remote import run
from bedplate.operate import Operator, Result, open_fleet, plan_loaded, plan_of
from bedplate.operate.apply import Selection, apply_machines, select_machines
from bedplate.operate.gateways import errors_of, nothing_updated, sync, update_gateways
from bedplate.operate.hub import refuse_tokens
from bedplate.operate.keys import check_person, keys_of, known_passphrase, now, users_of
from bedplate.operate.login import targets_by_name
from bedplate.plan import FleetPlan
from bedplate.plan.cluster import cluster_plan
from bedplate.plan.fleet import Account
from bedplate.plan.hub import HUB_CERTIFICATE
from bedplate.plan.laptops import laptop_gateways
from bedplate.plan.links import ssh_pools
from bedplate.plan.nodes import find_node
from bedplate.report.nodes import apply_lines
from bedplate.report.person import admission_line, documents_line, entry_of, invited_lines, kept_lines, unfinished_lines
from bedplate.report.vpn import issued_lines, qr_code_lines, revoked_lines
from vpn import signing
from vpn.authority import Reason
from vpn.certificates import GATEWAY_PREFIX, Passphrase, Subject, Use, device_words, laptop, user_of
from vpn.laptops.server import LaptopKeys, client_profile, laptop_rules, remotes
from vpn.pki import NoAuthority, Pki, bundle_of


def revoke_laptops_of(operator: Operator, user: str, device: str | None) -> None:
    """Revoke the laptops of a person, or one of them. Raises InputError if there is none."""
    pki = keys_of(users_of(operator).fleet, operator)
    laptops = laptops_of(pki, user)
    if device is not None:
        laptops &= {laptop(user, device).name}
    if not laptops:
        whose = f"{user}.{device}" if device else user
        prefix = f"{GATEWAY_PREFIX}{user}."
        is_gateway = any(issued.name.startswith(prefix) for issued in pki.certificates.issued.values())
        command = f"vpn revoke --gateway {user}" if is_gateway else "vpn list"
        raise InputError(f"{whose} has no certificate", fix=f"run `bedplate {command}`")
    revoke_laptops(operator, laptops, Reason.LOST)


def laptops_of(pki: Pki, user: str) -> set[str]:
    """Return the laptops of a person that ever had a certificate."""
    clients = (issued.name for issued in pki.certificates.issued.values() if issued.use is Use.CLIENT)
    return {name for name in clients if user_of(name) == user}


def revoke_laptops(operator: Operator, laptops: Collection[str], reason: Reason) -> None:
    """Revoke laptops, update the gateways and end the sessions. Raises PartialError if a gateway was not updated."""
    name = users_of(operator).fleet
    revoked = signing.revoke(keys_of(name, operator), laptops, reason, now(), known_passphrase(operator))
    operator.show(revoked_lines(revoked))
    with nothing_updated(operator):
        update_gateways(operator, plan_of(operator), keys_of(name, operator), cut=laptops)


def write_profile(operator: Operator, user: str, device: str, file: Path | None, *, is_drawn: bool) -> None:
    """Write the profile of a laptop to a file, or report it, `is_drawn` as QR codes."""
    plan = plan_of(operator)
    name = laptop(user, device).name
    profile = profile_of(plan, keys_of(plan.name, operator), name, known_passphrase(operator))
    if file:
        write_whole(file, profile.encode(), 0o600)
        operator.notify([f"wrote {file}"])
    else:
        operator.show(qr_code_lines(profile) if is_drawn else profile.splitlines())


def guard_rules(operator: Operator) -> Result:
    """Return nftables rules that drop packets for the fleet that would leave a laptop outside the tunnel."""
    plan = plan_of(operator)
    check_gateways(plan)
    return Result(laptop_rules(laptop_gateways(plan)).splitlines())


def profile_of(plan: FleetPlan, pki: Pki, name: str, passphrase: Passphrase) -> str:
    """Return the profile of a laptop. Raises InputError if it would not connect."""
    check_gateways(plan)
    _check_valid(pki, name)
    bundle = bundle_of(pki, name, passphrase)
    signing.check_bundle(name, bundle, Subject(name, Use.CLIENT), pki, now())
    keys = LaptopKeys(pki.authority.trusted, bundle.certificate, bundle.key, bundle.tls_crypt)
    return client_profile(laptop_gateways(plan), name, keys)


def check_gateways(plan: FleetPlan) -> None:
    """Raise InputError for a fleet without gateways of laptops."""
    if not plan.laptops:
        raise InputError("the fleet has no gateway for laptops", fix="declare one in `vpn.laptops.gateways`")


def check_endpoints(plan: FleetPlan) -> None:
    """Raise InputError for a fleet without gateways, or with one without a recorded address: no profile would work."""
    check_gateways(plan)
    tuple(remotes(laptop_gateways(plan)))


def _check_valid(pki: Pki, name: str) -> None:
    """Raise InputError for a laptop without a valid certificate: its profile would not connect."""
    certificate = pki.certificates.current(name)
    if certificate is None:
        raise InputError(f"{name} has no certificate", fix=f"run `bedplate vpn add {device_words(name)}`")
    if certificate.until <= now():
        what = f"the certificate of {name} expired on {certificate.until:%Y-%m-%d}"
        raise InputError(what, fix=f"run `bedplate vpn renew {device_words(name)}`")


_PEOPLE = frozenset({"people"})


def invite(operator: Operator, name: str, device: str, file: Path, *, is_applied: bool) -> int:
    """Write an archive with a person's access; `is_applied` also updates gateways and machines. Return the status."""
    subject = laptop(name, device)
    plan = _recorded_plan(operator, name)
    check_endpoints(plan)
    try_out([file])
    passphrase = known_passphrase(operator)
    pki = _with_certificate(operator, plan, subject, passphrase)
    certificate, failures = _hub_certificate(operator, plan)
    invitation = replace(_invitation(plan, pki, subject, passphrase), certificate=certificate)
    write_whole(file, pack(invitation_files(invitation)), 0o600)
    operator.show(invited_lines(invitation, file))
    if is_applied:
        failures += [*errors_of(lambda: sync(operator)), *_apply_people(operator, plan)]
        operator.show(documents_line(plan))
    else:
        operator.show([admission_line(name, _ssh_groups(plan), _option(operator))])
    again = f"bedplate person invite {name}{' --apply' if is_applied else ''}{_option(operator)}"
    operator.notify(unfinished_lines(failures, again))
    return PartialError.exit_code if failures else 0


def _hub_certificate(operator: Operator, plan: FleetPlan) -> tuple[str, list[BedplateError]]:
    """Return the certificate of the hub, read on its machine, or why it is missing; neither without a hub."""
    if not plan.hub:
        return "", []
    try:
        node = find_node(plan, plan.hub.node, plan.catalog)
        if not plan.record.host_keys.get(node.name):
            raise MachineError("its host key is not recorded", fix=trust_instructions(node))
        with targets_by_name(operator, plan, [node]) as targets:
            certificate = run(targets[node.name], "sudo", "cat", HUB_CERTIFICATE)
        load_pem_x509_certificate(certificate.encode())
    except BedplateError as error:
        return "", [PartialError(f"the archive lacks bp: {plan.hub.node}: {error.what}", fix=error.fix)]
    except ValueError:
        what = f"the archive lacks bp: {plan.hub.node} has no certificate in {HUB_CERTIFICATE}"
        return "", [PartialError(what, fix=f"run `bedplate node apply {plan.hub.node}`")]
    return certificate, []


def _recorded_plan(operator: Operator, name: str) -> FleetPlan:
    """Return the plan, after it recorded the ids of new people. Raises InputError for other unrecorded values."""
    loaded = open_fleet(operator)
    check_person(name, loaded.fleet.people)
    plan = plan_loaded(loaded)
    if not (plan.new_people or plan.new_groups):
        return plan
    check_recorded((*plan.new_blocks, *plan.new_addresses), operator.fleet)
    record_plan(lock_path(operator.fleet), loaded.fleet, loaded.catalog)
    operator.show([f"recorded in fleet.lock: {', '.join((*plan.new_people, *plan.new_groups))}"])
    return plan_loaded(loaded)


def _with_certificate(operator: Operator, plan: FleetPlan, subject: Subject, passphrase: Passphrase) -> Pki:
    """Return the keys of the fleet, after it issued a certificate to a laptop without a valid one."""
    pki = keys_of(plan.name, operator)
    certificate = pki.certificates.current(subject.name)
    if certificate and certificate.until > now() and pki.store.read(subject.name):
        return pki
    signing.check_free_slot(pki.certificates, subject.name, [pool.block for pool in plan.laptops], now())
    operator.show([next(issued_lines(signing.add(pki, [subject], now(), passphrase), now()))])
    return keys_of(plan.name, operator)


def _invitation(plan: FleetPlan, pki: Pki, subject: Subject, passphrase: Passphrase) -> Invitation:
    name = user_of(subject.name)
    person = next(person for person in plan.accounts.people if person.name == name)
    profile = profile_of(plan, pki, subject.name, passphrase)
    until = pki.certificates.holders()[subject.name].until
    return Invitation(
        plan, person, machines_of(plan, name, plan.catalog), profile, until, cluster=_cluster(plan, person)
    )


def _cluster(plan: FleetPlan, person: Account) -> Mapping[str, object]:
    """Return how bp reaches the cluster; nothing before it has authorities and a recorded host key."""
    cluster = cluster_plan(plan)
    if cluster is None or not cluster.authority:
        return {}
    # Slow: it imports the client of Kubernetes.
    from bedplate.kubernetes.desired import cluster_access

    with suppress(InputError):
        return cluster_access(plan, cluster, person)
    return {}


def remove(operator: Operator, name: str, *, keeps_pods: bool) -> int:
    """Revoke a person's laptops, end their pods, and remove their accounts; return the exit status.

    The accounts are removed from all machines once the fleet file does not declare them.
    """
    loaded = open_fleet(operator)
    plan = plan_loaded(loaded)
    laptops = _laptops(operator, plan, name)
    _check_known(name, plan, laptops)
    failures: list[BedplateError] = []
    if laptops:
        failures += errors_of(lambda: revoke_laptops(operator, laptops, Reason.LEFT))
    if plan.record.authority:
        # Slow: it imports the client of Kubernetes.
        from bedplate.operate.cluster_objects import remove_person

        failures += errors_of(lambda: remove_person(operator, plan, name, keeps_pods=keeps_pods))
    uid = {**plan.accounts.uids, **plan.accounts.departed}.get(name)
    if plan.hub and uid is not None:
        failures += errors_of(lambda: refuse_tokens(operator, plan, uid))
    if name in plan.accounts.uids:
        failures.append(_still_declared(loaded, name))
    elif name in plan.accounts.departed:
        failures += _apply_people(operator, plan)
    options = f"{' --keep-pods' if keeps_pods else ''}{_option(operator)}"
    operator.notify(unfinished_lines(failures, f"bedplate person remove {name}{options}"))
    operator.show(kept_lines(plan, name))
    if name not in plan.accounts.uids:
        operator.show(documents_line(plan))
    return PartialError.exit_code if failures else 0


def _laptops(operator: Operator, plan: FleetPlan, name: str) -> set[str]:
    """Return the laptops of a person; none for a fleet without a certificate authority."""
    try:
        return laptops_of(keys_of(plan.name, operator), name)
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


def _apply_people(operator: Operator, plan: FleetPlan) -> Iterator[BedplateError]:
    """Apply the role `people` to permanent machines and to running machines of SSH groups; yield the failures."""
    machines = select_machines(operator, plan, Selection(every=True))
    if groups := _ssh_groups(plan):
        try:
            machines += select_machines(operator, plan, Selection(groups=groups))
        except BedplateError as error:
            yield PartialError(f"running machines of {', '.join(groups)}: {error.what}", fix=error.fix)
    try:
        done = apply_machines(operator, plan, machines, _PEOPLE)
    except BedplateError as error:
        yield error
        return
    operator.show(apply_lines(done.outcomes, check=False))
    if done.interrupted:
        raise KeyboardInterrupt
    for outcome in done.outcomes:
        if not outcome.is_done:
            yield PartialError(f"accounts on {outcome.node}", fix=outcome.error.fix if outcome.error else "")


def _ssh_groups(plan: FleetPlan) -> tuple[str, ...]:
    return tuple(dict.fromkeys(pool.group for pool in ssh_pools(plan)))


def _option(operator: Operator) -> str:
    """Return the option that names the fleet file; empty for the default."""
    return "" if operator.fleet == Path(FLEET_FILE) else f" --fleet {quote(str(operator.fleet))}"
