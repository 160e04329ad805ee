"""The control plane: its authorities and connections, the start and replacement of its members, and a restore."""

import secrets
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from bedplate.account.bundle import RegionStore
from bedplate.errors import BedplateError, HeldError, InputError, PartialError, error_lines
from bedplate.files import check_files_exist, held, login_name, os_errors_as_machine_errors, write_whole
from bedplate.kubernetes import formation
from bedplate.kubernetes.authorities import (
    CLUSTER,
    Authorities,
    admin_config,
    digest,
    is_usable,
    new_authorities,
    read_authorities,
    write_authorities,
)
from bedplate.kubernetes.members import (
    LONG,
    Connection,
    MemberStatus,
    archive,
    ask_all,
    check_authority,
    on_all,
    read_status,
)
from bedplate.kubernetes.snapshots import PREFIX, check_snapshot, newest_key
from bedplate.lock import check_plan_recorded, lock_path, record_authority, record_etcd
from bedplate.operate import Operator, open_account, plan_of
from bedplate.operate.keys import FOLDER, PARAMETERS, keys_of, known_passphrase, now, store_of
from bedplate.operate.login import targets_by_name
from bedplate.plan import FleetPlan
from bedplate.plan.cluster import ClusterPlan, cluster_plan, initial_cluster, peer_url
from bedplate.plan.fleet import ControlPlaneMember
from bedplate.plan.nodes import NodePlan, NodeRole, permanent_nodes
from bedplate.plan.record import FORMING
from vpn.pki import AUTHORITY, KeyStore, NoAuthority, Pki, folder_of, open_issuer

_PRIVATE, _PRIVATE_FOLDER = 0o600, 0o700


def cluster_of(plan: FleetPlan) -> ClusterPlan:
    """Return the plan of the cluster. Raises InputError for a fleet without one."""
    cluster = cluster_plan(plan)
    if cluster is None:
        raise InputError(f"the fleet {plan.name} has no cluster", fix="add the `kubernetes` section to the fleet file")
    return cluster


def locked(operator: Operator) -> AbstractContextManager[None]:
    """Return the lock of the commands that change the cluster. Raises HeldError while another process holds it."""
    return held(operator.fleet.with_suffix(".kubernetes"))


def make_authorities(operator: Operator, plan: FleetPlan) -> Authorities:
    """Return the cluster's authorities, made if there are none, and record what is public in the lock.

    They are encrypted by a passphrase if those of the VPN are. Raises InputError if the store lacks recorded ones.
    """
    folder = folder_of(operator.fleet)
    folder.create()
    store, passphrase = _store(operator, plan), known_passphrase(operator)
    authorities = read_authorities(store, passphrase)
    if authorities is None:
        if plan.record.authority:
            fix = "copy fleet.pki with its folder `keys` from the machine where `bedplate kube init` first ran"
            raise InputError("the key store lacks the cluster's authorities", where=str(folder.path), fix=fix)
        authorities = new_authorities(plan.name, now())
        write_authorities(store, authorities, _vpn_passphrase(operator, plan))
    record_authority(lock_path(operator.fleet), plan.name, authorities.certificate, authorities.account_key)
    return authorities


def _store(operator: Operator, plan: FleetPlan) -> KeyStore:
    """Return the store with the cluster's keys: that of the VPN, or the folder for a fleet that had no VPN then."""
    folder = store_of(FOLDER, operator)
    pki = _vpn_pki(operator, plan) if folder.read(CLUSTER) is None else None
    return store_of(PARAMETERS, operator) if pki and pki.journal.begun.keys == PARAMETERS else folder


def _vpn_pki(operator: Operator, plan: FleetPlan) -> Pki | None:
    try:
        return keys_of(plan.name, operator)
    except NoAuthority:
        return None


def _vpn_passphrase(operator: Operator, plan: FleetPlan) -> bytes | None:
    """Return the verified passphrase of the VPN's keys; None if they are not encrypted."""
    pki = _vpn_pki(operator, plan)
    return open_issuer(pki, known_passphrase(operator))[1] if pki and pki.store.read(AUTHORITY) else None


def admin_kubeconfig(operator: Operator, plan: FleetPlan) -> Path:
    """Return the operator's own kubeconfig, which is renewed here after half of its 12 hours.

    Raises InputError before `bedplate kube init`.
    """
    cluster, keys = cluster_of(plan), folder_of(operator.fleet).keys
    path = keys / "admin.kubeconfig"
    if is_usable(path, cluster, cluster.authority, now()):
        return path
    authorities = read_authorities(_store(operator, plan), known_passphrase(operator))
    if authorities is None:
        fix = "run `bedplate kube init`"
        if cluster.authority:
            fix = f"copy {keys} from the machine that ran `bedplate kube init`"
        raise InputError("the keys of the cluster's authorities are not on this machine", fix=fix)
    with os_errors_as_machine_errors(path):
        path.parent.mkdir(mode=_PRIVATE_FOLDER, exist_ok=True)
    write_whole(path, admin_config(cluster, authorities.cluster, login_name(), now()).encode(), _PRIVATE)
    return path


def member_nodes(plan: FleetPlan) -> tuple[NodePlan, ...]:
    """Return the machines of the control plane."""
    return tuple(node for node in permanent_nodes(plan) if NodeRole.CONTROL in node.roles)


@contextmanager
def connections(operator: Operator, plan: FleetPlan, nodes: Sequence[NodePlan]) -> Iterator[dict[str, Connection]]:
    """Yield the ssh connections of machines by name."""
    with targets_by_name(operator, plan, nodes) as targets:
        yield {name: Connection(target) for name, target in targets.items()}


def init(operator: Operator) -> int:
    """Start the cluster, and write the operator's kubeconfig; return the exit status."""
    plan = plan_of(operator)
    cluster_of(plan)
    check_plan_recorded(plan, operator.fleet)
    status = start_cluster(operator)
    operator.show([f"kubeconfig: {admin_kubeconfig(operator, plan_of(operator))}"])
    return status


def start_cluster(operator: Operator) -> int:
    """Make the authorities, start every member that does not run, and report its state; return the exit status.

    The first member of a new fleet forms the cluster. Others start with its data, or join one after the other.
    """
    plan = plan_of(operator)
    with locked(operator), connections(operator, plan, member_nodes(plan)) as members:
        statuses, errors = ask_all(members.values(), read_status)
        is_new = not plan.record.authority
        authority = "" if is_new else digest(plan.record.authority)
        states = {(status.authority, status.is_ready) for status in statuses.values()}
        ids = {status.cluster for status in statuses.values()} - {""}
        if not errors and states == {(authority, True)} and len(ids) == 1:
            record_etcd(lock_path(operator.fleet), plan.name, ids.pop())
            if not plan.record.account_keys:  # the lock of an older version
                make_authorities(operator, plan)
            operator.show(["control plane: runs"])
            return 0
        authorities = make_authorities(operator, plan)
        check_authority(statuses, authorities.digest)
        if is_new:
            record_etcd(lock_path(operator.fleet), plan.name, FORMING)
        errors.update(_Start(operator, members, archive(authorities)).run(statuses, errors))
    return _report(operator, members, errors)


@dataclass(frozen=True, slots=True)
class _Start:
    """The start of members: their connections, and the authorities as an archive."""

    operator: Operator
    members: Mapping[str, Connection]
    files: bytes

    def run(
        self, statuses: Mapping[str, MemberStatus], silent: Mapping[str, BedplateError]
    ) -> Mapping[str, BedplateError]:
        """Start the members that do not run, and return their errors."""
        cluster = self.cluster
        planned, healthy = formation.plan_formation(cluster, statuses, silent), formation.running(cluster, statuses)
        commands: dict[str, tuple[str, ...]] = dict.fromkeys(planned.start, ("take",))
        if planned.first:
            first = [member for member in cluster.members if member.name == planned.first]
            commands[planned.first] = ("form", "new", _token(cluster), initial_cluster(first))
        forms = {planned.first: ": it forms the cluster"}
        self.operator.show(f"start {name}{forms.get(name, '')}" for name in commands)
        starting = [self.members[name] for name in commands]
        begun, failed = ask_all(starting, lambda member: member.run(*commands[member.name], data=self.files))
        # A member that had not copied all data gets its vote when it has.
        learners = {entry.url for status in healthy.values() for entry in status.etcd if entry.is_learner}
        for member in cluster.members:
            if member.name in begun and peer_url(member) in learners:
                self.members[next(iter(healthy))].run("promote", peer_url(member))
        failed |= _finish(self.operator, [self.members[name] for name in begun])
        started, lost = ask_all([self.members[name] for name in statuses], read_status)
        if etcd := formation.adopted_id(cluster, started, silent):
            record_etcd(lock_path(self.operator.fleet), cluster.fleet, etcd)
        errors = {**planned.errors, **failed, **lost, **formation.stale_members(self.cluster, started)}
        joining = [name for name in planned.join if name not in errors]
        if planned.first and not formation.running(self.cluster, started):
            return errors | {name: _joins_after(name, planned.first) for name in joining}
        return errors | self.join(joining, started, silent)

    @property
    def cluster(self) -> ClusterPlan:
        """The cluster with the id that is recorded now."""
        return cluster_of(plan_of(self.operator))

    def join(
        self, names: Collection[str], statuses: Mapping[str, MemberStatus], silent: Collection[str]
    ) -> dict[str, BedplateError]:
        """Let members without data copy that of the others, one after the other; return the errors."""
        cluster, errors = self.cluster, dict[str, BedplateError]()
        healthy = next(iter(formation.running(cluster, statuses)), None)
        for member in cluster.members:
            if member.name not in names:
                continue
            if healthy is None:
                errors[member.name] = formation.no_data(member.name, silent)
            elif errors:
                errors[member.name] = _joins_after(member.name, next(iter(errors)))
            else:
                errors |= self._join(member, self.members[healthy])
        return errors

    def _join(self, planned: ControlPlaneMember, healthy: Connection) -> dict[str, BedplateError]:
        member, url = self.members[planned.name], peer_url(planned)
        self.operator.show([f"{healthy.name}: let {member.name} join", f"start {member.name}"])
        try:
            healthy.run("forget", url)
            initial = healthy.run("admit", member.name, url).strip()
            member.run("form", "existing", self.cluster.fleet, initial, data=self.files)
            healthy.run("promote", url)
        except PartialError as error:
            return {member.name: error}
        return _finish(self.operator, [member])


def _joins_after(name: str, other: str) -> PartialError:
    return PartialError(f"{name} joins after {other}", fix="run the command again")


def _token(cluster: ClusterPlan) -> str:
    """Return a token from which etcd makes an id that no other cluster has."""
    return f"{cluster.fleet}-{secrets.token_hex(8)}"


def _finish(operator: Operator, members: Iterable[Connection]) -> dict[str, BedplateError]:
    """Wait until the API of each member is ready, and grant rights; return the errors."""

    def finish(member: Connection) -> None:
        member.run("ready")
        member.run("finish")
        operator.show([f"{member.name}: ready"])

    return ask_all(members, finish)[1]


def _report(operator: Operator, members: Collection[str], errors: Mapping[str, BedplateError]) -> int:
    """Report the errors and return the exit status. Raises HeldError while another operator changes a member."""
    for error in errors.values():
        if isinstance(error, HeldError):
            raise error
        operator.notify(error_lines(error))
    if errors:
        operator.notify([f"{len(members) - len(errors)} of {len(members)} members are ready: run the command again"])
        return PartialError.exit_code
    return 0


def replace_member(operator: Operator, name: str) -> int:
    """Let a member with a lost volume, or with data of another cluster, join anew; return the exit status."""
    plan = plan_of(operator)
    planned = {member.name: member for member in cluster_of(plan).members}
    if name not in planned:
        raise InputError(f"no control plane member named {name}", fix=f"write one of {', '.join(planned)}")
    with locked(operator), connections(operator, plan, member_nodes(plan)) as members:
        authorities = make_authorities(operator, plan)
        statuses, errors = ask_all(members.values(), read_status)
        if error := errors.get(name):
            raise error
        check_authority(statuses, authorities.digest)
        start = _Start(operator, members, archive(authorities))
        if not formation.is_recorded(start.cluster):
            raise InputError("the id of the etcd cluster is not recorded", fix="run `bedplate kube init` first")
        healthy = formation.running(start.cluster, statuses)
        if name in healthy:
            operator.show([f"{name}: runs"])
            return 0
        if len(healthy) <= len(members) // 2:
            fix = "start the others first; if their volumes are lost too, run `bedplate kube restore`"
            raise PartialError(f"only {len(healthy)} of {len(members)} members run: etcd accepts no change", fix=fix)
        if statuses[name].has_data:
            if name not in formation.stale_members(start.cluster, statuses):
                what = f"{name} has the data of etcd: it is not replaced"
                fix = f"`bedplate node logs {name}`; to give it up, detach and delete its volume, then `bedplate up`"
                raise InputError(what, fix=fix)
            operator.show([f"{name}: move the data of the other cluster to data.before"])
            members[name].run("discard")
        errors = start.join([name], statuses, ())
    return _report(operator, [name], errors)


def restore(operator: Operator, snapshot: str | None, without: Sequence[str], *, is_signed: bool) -> int:
    """Restore the cluster from a snapshot, by all members but those `without`; return the exit status.

    The snapshot is a file, or a key in the bucket; the newest one without a name.
    """
    plan = plan_of(operator)
    remaining = formation.remaining_members(cluster_of(plan), without)
    with (
        tempfile.TemporaryDirectory(prefix="bedplate-") as folder,
        locked(operator),
        connections(operator, plan, member_nodes(plan)) as connected,
    ):
        members = {member.name: connected[member.name] for member in remaining}
        everyone = tuple(members.values())
        authorities = make_authorities(operator, plan)
        check_authority(on_all(everyone, read_status), authorities.digest)
        file = _snapshot(operator, plan, snapshot, Path(folder), is_signed=is_signed)
        if not is_signed:
            operator.notify([f"{file.name}: nobody has verified who made it", f"{file.stat().st_size:,} bytes"])
        else:
            names = [member.name for member in cluster_of(plan).members]
            facts = check_snapshot(file, file.name, authorities.snapshot_key, names, now())
            operator.show(facts.lines(file.stat().st_size, now()))
        operator.confirm("replace the state of the cluster by this snapshot?")
        operator.show(["send the snapshot to all members"])
        on_all(everyone, lambda member: member.send("receive", file))
        operator.show(["stop all members"])
        on_all(everyone, lambda member: member.run("stop"))
        operator.show(["restore and start all members"])
        files, token = archive(authorities), _token(cluster_of(plan))
        on_all(everyone, lambda member: member.run("take", data=files))
        # Before any starts: members with the data before are then those of another cluster.
        record_etcd(lock_path(operator.fleet), plan.name, formation.etcd_cluster_id(remaining, token), replaces=True)
        command = ("restore", token, initial_cluster(remaining))
        on_all(everyone, lambda member: member.run(*command, seconds=LONG))
        errors = _finish(operator, everyone)
    operator.show(f"later: `bedplate kube member replace {name}`" for name in without)
    return _report(operator, members, errors)


def _snapshot(operator: Operator, plan: FleetPlan, name: str | None, folder: Path, *, is_signed: bool) -> Path:
    """Return the file of a snapshot; one of the bucket is downloaded. Raises InputError if there is none."""
    if name and not name.startswith(PREFIX):
        check_files_exist(Path(name))
        return Path(name)
    store = RegionStore(open_account(plan), plan, plan.home.name)
    keys = sorted(store.keys(PREFIX), key=lambda key: key.rpartition("/")[2])
    if name and name not in keys:
        fix = f"write a file, or one of {', '.join(keys[-3:])}" if keys else "name an existing file"
        raise InputError(f"no snapshot {name}", fix=fix)
    if not is_signed and not name:
        raise InputError("--unsigned needs the name of a snapshot", fix=f"write one of {', '.join(keys[-3:])}")
    key = name or newest_key(keys, [member.name for member in cluster_of(plan).members], now())
    if not key:
        what = f"no snapshot in {store.bucket} that a control plane member of the fleet file has signed"
        raise InputError(what, fix="name a file, such as one copied from a member's volume")
    file = folder / key.rpartition("/")[2]
    operator.show([f"download {key}"])
    store.save(key, file)
    return file
