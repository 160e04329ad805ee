"""The commands that make and change the control plane: kube init, member, restore, upgrade."""

import secrets
import tempfile
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import typer

from bedplate.cli.fleet import open_account, plan_of
from bedplate.cli.kube_session import (
    Without,
    admin_kubeconfig,
    cluster_of,
    connections,
    locked,
    make_authorities,
    member_nodes,
)
from bedplate.cli.login import SshOptions
from bedplate.cli.output import (
    DEFAULT_FLEET,
    FleetFile,
    FleetOption,
    Identity,
    PassphraseFile,
    SshConfig,
    User,
    Yes,
    check_files_exist,
    confirm,
    notify,
    show,
)
from bedplate.cli.vpn_session import now
from bedplate.errors import BedplateError, HeldError, InputError, PartialError
from bedplate.kube.authorities import digest
from bedplate.kube.formation import (
    adopted_id,
    etcd_cluster_id,
    is_recorded,
    no_data,
    plan_formation,
    remaining_members,
    running,
    stale_members,
)
from bedplate.kube.members import (
    LONG,
    Connection,
    MemberStatus,
    archive,
    ask_all,
    check_authority,
    on_all,
    read_status,
)
from bedplate.kube.snapshots import PREFIX, check_snapshot, newest_key
from bedplate.lock import check_plan_recorded, lock_path, record_etcd
from bedplate.plan import FleetPlan
from bedplate.plan.cluster import ClusterPlan, initial_cluster, peer_url
from bedplate.plan.fleet import ControlPlaneMember
from bedplate.plan.record import FORMING
from bedplate.report.diagnostics import error_lines


def init(
    fleet: FleetFile = DEFAULT_FLEET,
    *,
    user: User = None,
    identity: Identity = None,
    ssh_config: SshConfig = None,
    passphrase_file: PassphraseFile = None,
) -> int:
    """Make the cluster's authorities and start it.

    Writes the authorities to the volume of each member, waits until the API answers, and writes the operator's
    kubeconfig. Skips what is done. The exit status is 6 if a member failed; the same command continues. All members
    must answer until the first start has ended, and until a lock without the id of the etcd cluster has it; later, a
    member that is away stops no other.
    """
    plan = plan_of(fleet)
    cluster_of(plan)
    check_plan_recorded(plan, fleet)
    status = start_cluster(fleet, SshOptions(fleet, user, identity, ssh_config), passphrase_file)
    show([f"kubeconfig: {admin_kubeconfig(fleet, plan_of(fleet), passphrase_file)}"])
    return status


def start_cluster(fleet: Path, options: SshOptions, passphrase_file: Path | None = None) -> int:
    """Make the authorities, start every member that does not run, and print its state; return the exit status.

    The first member of a new fleet forms the cluster. Others start with its data, or join one after the other.
    """
    plan = plan_of(fleet)
    with locked(fleet), connections(plan, member_nodes(plan), options) as members:
        statuses, errors = ask_all(members.values(), read_status)
        is_new = not plan.record.authority
        authority = "" if is_new else digest(plan.record.authority)
        states = {(status.authority, status.is_ready) for status in statuses.values()}
        ids = {status.cluster for status in statuses.values()} - {""}
        if not errors and states == {(authority, True)} and len(ids) == 1:
            record_etcd(lock_path(fleet), plan.name, ids.pop())
            if not plan.record.account_keys:  # the lock of an older version
                make_authorities(fleet, plan, passphrase_file)
            show(["control plane: runs"])
            return 0
        authorities = make_authorities(fleet, plan, passphrase_file)
        check_authority(statuses, authorities.digest)
        if is_new:
            record_etcd(lock_path(fleet), plan.name, FORMING)
        errors.update(_Start(fleet, members, archive(authorities)).run(statuses, errors))
    return _report(members, errors)


@dataclass(frozen=True, slots=True)
class _Start:
    """The start of members: their connections, and the authorities as an archive."""

    fleet: Path
    members: Mapping[str, Connection]
    files: bytes

    def run(
        self, statuses: Mapping[str, MemberStatus], silent: Mapping[str, BedplateError]
    ) -> Mapping[str, BedplateError]:
        """Start the members that do not run, and return their errors."""
        cluster = self.cluster
        formation, healthy = plan_formation(cluster, statuses, silent), running(cluster, statuses)
        commands = dict.fromkeys(formation.start, "take")
        if formation.first:
            first = [member for member in cluster.members if member.name == formation.first]
            commands[formation.first] = f"form new {_token(cluster)} {initial_cluster(first)}"
        show(f"start {name}" + (": it forms the cluster" if name == formation.first else "") for name in commands)
        starting = [self.members[name] for name in commands]
        begun, failed = ask_all(starting, lambda member: member.run(commands[member.name], self.files))
        # A member that had not copied all data gets its vote when it has.
        learners = {entry.url for status in healthy.values() for entry in status.etcd if entry.is_learner}
        for member in cluster.members:
            if member.name in begun and peer_url(member) in learners:
                self.members[next(iter(healthy))].run(f"promote {peer_url(member)}")
        failed |= _finish([self.members[name] for name in begun])
        started, lost = ask_all([self.members[name] for name in statuses], read_status)
        if etcd := adopted_id(cluster, started, silent):
            record_etcd(lock_path(self.fleet), cluster.fleet, etcd)
        errors = {**formation.errors, **failed, **lost, **stale_members(self.cluster, started)}
        return errors | self.join([name for name in formation.join if name not in errors], started, silent)

    @property
    def cluster(self) -> ClusterPlan:
        """The cluster with the id that is recorded now."""
        return cluster_of(plan_of(self.fleet))

    def join(
        self, names: Collection[str], statuses: Mapping[str, MemberStatus], silent: Collection[str]
    ) -> dict[str, BedplateError]:
        """Let members without data copy that of the others, one after the other; return the errors."""
        cluster, errors = self.cluster, dict[str, BedplateError]()
        healthy = next(iter(running(cluster, statuses)), None)
        for member in cluster.members:
            if member.name not in names:
                continue
            if healthy is None:
                errors[member.name] = no_data(member.name, silent)
            elif errors:
                fix = "run the command again"
                errors[member.name] = PartialError(f"{member.name} joins after {next(iter(errors))}", fix=fix)
            else:
                errors |= self._join(member, self.members[healthy])
        return errors

    def _join(self, planned: ControlPlaneMember, healthy: Connection) -> dict[str, BedplateError]:
        member, url = self.members[planned.name], peer_url(planned)
        show([f"{healthy.name}: let {member.name} join", f"start {member.name}"])
        try:
            healthy.run(f"forget {url}")
            initial = healthy.run(f"admit {member.name} {url}").strip()
            member.run(f"form existing {self.cluster.fleet} {initial}", self.files)
            healthy.run(f"promote {url}")
        except PartialError as error:
            return {member.name: error}
        return _finish([member])


def _token(cluster: ClusterPlan) -> str:
    """Return a token from which etcd makes an id that no other cluster has."""
    return f"{cluster.fleet}-{secrets.token_hex(8)}"


def _finish(members: Iterable[Connection]) -> dict[str, BedplateError]:
    """Wait until the API of each member is ready, and grant rights; return the errors."""

    def finish(member: Connection) -> None:
        member.run("ready")
        member.run("finish")
        show([f"{member.name}: ready"])

    return ask_all(members, finish)[1]


def _report(members: Collection[str], errors: Mapping[str, BedplateError]) -> int:
    """Print the errors and return the exit status. Raises HeldError while another operator changes a member."""
    for error in errors.values():
        if isinstance(error, HeldError):
            raise error
        notify(error_lines(error))
    if errors:
        notify([f"{len(members) - len(errors)} of {len(members)} members are ready: run the command again"])
        return PartialError.exit_code
    return 0


def member(  # noqa: PLR0913  each is an option of the command line
    action: Annotated[
        Literal["replace"],
        typer.Argument(metavar="replace", help="The word `replace`: let a member with a new volume join."),
    ],
    name: Annotated[str, typer.Argument(metavar="NAME", help="A member, such as control-2.us-west-2.")],
    *,
    user: User = None,
    identity: Identity = None,
    ssh_config: SshConfig = None,
    passphrase_file: PassphraseFile = None,
    fleet: FleetOption = DEFAULT_FLEET,
) -> int:
    """Replace a member's lost volume, or its data of another cluster.

    The others must run. They forget the member, which gets the authorities and copies their data. A member that only
    lost its machine restores itself.
    """
    del action  # there is one
    plan = plan_of(fleet)
    planned = {member.name: member for member in cluster_of(plan).members}
    if name not in planned:
        raise InputError(f"no member named {name}", fix=f"write one of {', '.join(planned)}")
    options = SshOptions(fleet, user, identity, ssh_config)
    with locked(fleet), connections(plan, member_nodes(plan), options) as members:
        authorities = make_authorities(fleet, plan, passphrase_file)
        statuses, errors = ask_all(members.values(), read_status)
        if error := errors.get(name):
            raise error
        check_authority(statuses, authorities.digest)
        start = _Start(fleet, members, archive(authorities))
        if not is_recorded(start.cluster):
            raise InputError("the id of the etcd cluster is not recorded", fix="run `bedplate kube init` first")
        healthy = running(start.cluster, statuses)
        if name in healthy:
            show([f"{name}: runs"])
            return 0
        if len(healthy) <= len(members) // 2:
            fix = "start the others first; if their volumes are lost too, run `bedplate kube restore`"
            raise PartialError(f"only {len(healthy)} of {len(members)} members run: etcd accepts no change", fix=fix)
        if statuses[name].has_data:
            if name not in stale_members(start.cluster, statuses):
                what = f"{name} has the data of etcd: it is not replaced"
                fix = f"`bedplate node logs {name}`; to give it up, detach and delete its volume, then `bedplate up`"
                raise InputError(what, fix=fix)
            show([f"{name}: move the data of the other cluster to data.before"])
            members[name].run("discard")
        errors = start.join([name], statuses, ())
    return _report([name], errors)


def restore(  # noqa: PLR0913  each is an option of the command line
    snapshot: Annotated[
        str | None, typer.Argument(metavar="[SNAPSHOT]", help="A file, or a key in the bucket. Default: the newest.")
    ] = None,
    *,
    without: Without = None,
    unsigned: Annotated[bool, typer.Option("--unsigned", help="Accept a snapshot that no member has signed.")] = False,
    yes: Yes = False,
    user: User = None,
    identity: Identity = None,
    ssh_config: SshConfig = None,
    passphrase_file: PassphraseFile = None,
    fleet: FleetOption = DEFAULT_FLEET,
) -> int:
    """Restore the cluster from a snapshot.

    Every member must answer. Each checks the snapshot before any is stopped; then all restore it, and start. The data
    before is kept on each volume until the next restore. A snapshot must be signed by a member: with --unsigned, who
    made the file can be administrator of the cluster. With --without, the others restore it; `kube member replace` lets
    the missing one join later.
    """
    plan = plan_of(fleet)
    remaining = remaining_members(cluster_of(plan), without or ())
    options = SshOptions(fleet, user, identity, ssh_config)
    with (
        tempfile.TemporaryDirectory(prefix="bedplate-") as folder,
        locked(fleet),
        connections(plan, member_nodes(plan), options) as connected,
    ):
        members = {member.name: connected[member.name] for member in remaining}
        everyone = tuple(members.values())
        authorities = make_authorities(fleet, plan, passphrase_file)
        check_authority(on_all(everyone, read_status), authorities.digest)
        file = _snapshot(plan, snapshot, Path(folder), unsigned=unsigned)
        if unsigned:
            notify([f"{file.name}: nobody has verified who made it", f"{file.stat().st_size:,} bytes"])
        else:
            names = [member.name for member in cluster_of(plan).members]
            facts = check_snapshot(file, file.name, authorities.snapshot_key, names, now())
            show(facts.lines(file.stat().st_size, now()))
        confirm("replace the state of the cluster by this snapshot?", yes=yes)
        show(["send the snapshot to all members"])
        on_all(everyone, lambda member: member.send("receive", file))
        show(["stop all members"])
        on_all(everyone, lambda member: member.run("stop"))
        show(["restore and start all members"])
        files, token = archive(authorities), _token(cluster_of(plan))
        on_all(everyone, lambda member: member.run("take", files))
        # Before any starts: members with the data before are then those of another cluster.
        record_etcd(lock_path(fleet), plan.name, etcd_cluster_id(remaining, token), replaces=True)
        command = f"restore {token} {initial_cluster(remaining)}"
        on_all(everyone, lambda member: member.run(command, seconds=LONG))
        errors = _finish(everyone)
    show(f"later: `bedplate kube member replace {name}`" for name in without or ())
    return _report(members, errors)


def _snapshot(plan: FleetPlan, name: str | None, folder: Path, *, unsigned: bool) -> Path:
    """Return the file of a snapshot; one of the bucket is downloaded. Raises InputError if there is none."""
    if name and not name.startswith(PREFIX):
        check_files_exist(Path(name))
        return Path(name)
    # Slow: it imports boto3.
    from bedplate.account.bundle import RegionStore

    store = RegionStore(open_account(plan), plan, plan.home.name)
    keys = sorted(store.keys(PREFIX), key=lambda key: key.rpartition("/")[2])
    if name and name not in keys:
        fix = f"write a file, or one of {', '.join(keys[-3:])}" if keys else "name an existing file"
        raise InputError(f"no snapshot {name}", fix=fix)
    if unsigned and not name:
        raise InputError("--unsigned needs the name of a snapshot", fix=f"write one of {', '.join(keys[-3:])}")
    key = name or newest_key(keys, [member.name for member in cluster_of(plan).members], now())
    if not key:
        what = f"no snapshot in {store.bucket} that a member of the fleet file has signed"
        raise InputError(what, fix="name a file, such as one copied from a member's volume")
    file = folder / key.rpartition("/")[2]
    show([f"download {key}"])
    store.save(key, file)
    return file
