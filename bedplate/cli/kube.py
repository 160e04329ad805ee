"""The commands that make and change the control plane: kube init, member, restore, upgrade."""

import tempfile
import time
from collections.abc import Collection, Iterable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from bedplate.cli.deploy import Yes, confirm
from bedplate.cli.fleet import open_account, plan_of
from bedplate.cli.kube_session import (
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
    check_files_exist,
    notify,
    show,
)
from bedplate.errors import BedplateError, HeldError, InputError, PartialError
from bedplate.kube.authorities import digest
from bedplate.kube.members import (
    LONG,
    Connection,
    MemberStatus,
    archive,
    ask_all,
    check_authority,
    lost_members,
    on_all,
    read_status,
)
from bedplate.lock import check_plan_recorded
from bedplate.plan import FleetPlan
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
    kubeconfig. Skips what is done. The exit status is 6 if a member failed; the same command continues.
    """
    plan = plan_of(fleet)
    cluster_of(plan)
    check_plan_recorded(plan, fleet)
    status = start_cluster(fleet, SshOptions(fleet, user, identity, ssh_config), passphrase_file)
    show([f"kubeconfig: {admin_kubeconfig(fleet, plan_of(fleet), passphrase_file)}"])
    return status


def start_cluster(fleet: Path, options: SshOptions, passphrase_file: Path | None = None) -> int:
    """Make the authorities, start every member that is not ready, and print its state; return the exit status."""
    plan = plan_of(fleet)
    with locked(fleet), connections(plan, member_nodes(plan), options) as members:
        statuses, errors = ask_all(members.values(), read_status)
        authority_digest = digest(plan.record.authority) if plan.record.authority else ""
        if authority_digest and not errors and all(_runs(status, authority_digest) for status in statuses.values()):
            show(["control plane: runs"])
            return 0
        authorities = make_authorities(fleet, plan, passphrase_file)
        check_authority(statuses, authorities.digest)
        errors.update(_unstartable(statuses))
        pending = [name for name in statuses if name not in errors and not _runs(statuses[name], authorities.digest)]
        show(f"start {name}" for name in pending)
        files = archive(authorities)
        started, failures = ask_all([members[name] for name in pending], lambda member: member.run("take", files))
        errors.update(failures)
        able = [name for name in statuses if name in started or (name not in pending and name not in errors)]
        if len(able) * 2 > len(members):
            errors.update(_finish([members[name] for name in able]))
    return _report(members, errors)


def _runs(status: MemberStatus, authority: str) -> bool:
    return status.is_ready and status.authority == authority


def _unstartable(statuses: Mapping[str, MemberStatus]) -> dict[str, BedplateError]:
    """Return the errors of members that only another command may start."""
    errors: dict[str, BedplateError] = {
        name: PartialError(f"{name} is in a restore that has not ended", fix="run `bedplate kube restore` again")
        for name, status in statuses.items()
        if status.is_restoring
    }
    for name in lost_members(statuses):
        fix = f"run `bedplate kube member replace {name}`"
        errors[name] = PartialError(f"{name} has lost its data: its volume is new", fix=fix)
    return errors


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


class MemberAction(StrEnum):
    """The actions of `kube member`."""

    REPLACE = "replace"


def member(  # noqa: PLR0913  each is an option of the command line
    action: Annotated[
        MemberAction, typer.Argument(metavar="replace", help="The word `replace`: let a member with a new volume join.")
    ],
    name: Annotated[str, typer.Argument(metavar="NAME", help="A member, such as control-2.us-west-2.")],
    *,
    user: User = None,
    identity: Identity = None,
    ssh_config: SshConfig = None,
    passphrase_file: PassphraseFile = None,
    fleet: FleetOption = DEFAULT_FLEET,
) -> int:
    """Replace a member's lost volume.

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
        if statuses[name].has_data:
            if statuses[name].is_ready:
                show([f"{name}: runs"])
                return 0
            what = f"{name} has the data of etcd: it is not replaced"
            fix = f"`bedplate node logs {name}`; to give it up, detach and delete its volume, then `bedplate up`"
            raise InputError(what, fix=fix)
        healthy = [other for other, status in statuses.items() if status.is_ready and other != name]
        if len(healthy) <= len(members) // 2:
            fix = "start the others first; if their volumes are lost too, run `bedplate kube restore`"
            raise PartialError(f"only {len(healthy)} of {len(members)} members run: etcd accepts no change", fix=fix)
        show([f"{healthy[0]}: let {name} join again"])
        members[healthy[0]].run(f"forget {name} https://{planned[name].address}:2380")
        show([f"start {name}"])
        members[name].run("take joining", archive(authorities))
        errors = _finish([members[name]])
    return _report([name], errors)


def restore(  # noqa: PLR0913  each is an option of the command line
    snapshot: Annotated[
        str | None, typer.Argument(metavar="[SNAPSHOT]", help="A file, or a key in the bucket. Default: the newest.")
    ] = None,
    *,
    yes: Yes = False,
    user: User = None,
    identity: Identity = None,
    ssh_config: SshConfig = None,
    passphrase_file: PassphraseFile = None,
    fleet: FleetOption = DEFAULT_FLEET,
) -> int:
    """Restore the cluster from a snapshot.

    Every member must answer. Each checks the snapshot before any is stopped; then all restore it, and start. The data
    before is kept on each volume until the next restore.
    """
    plan = plan_of(fleet)
    cluster_of(plan)
    options = SshOptions(fleet, user, identity, ssh_config)
    with (
        tempfile.TemporaryDirectory(prefix="bedplate-") as folder,
        locked(fleet),
        connections(plan, member_nodes(plan), options) as members,
    ):
        file = _snapshot(plan, snapshot, Path(folder))
        everyone = tuple(members.values())
        authorities = make_authorities(fleet, plan, passphrase_file)
        check_authority(on_all(everyone, read_status), authorities.digest)
        confirm(f"replace the state of the cluster by {snapshot or file.name}?", yes=yes)
        show(["send the snapshot to all members"])
        on_all(everyone, lambda member: member.send("receive", file))
        show(["stop all members"])
        on_all(everyone, lambda member: member.run("stop"))
        show(["restore and start all members"])
        files, token = archive(authorities), f"{plan.name}-{int(time.time())}"
        on_all(everyone, lambda member: member.run("take", files))
        on_all(everyone, lambda member: member.run(f"restore {token}", seconds=LONG))
        errors = _finish(everyone)
    return _report(members, errors)


def _snapshot(plan: FleetPlan, name: str | None, folder: Path) -> Path:
    """Return the file of a snapshot; one of the bucket is downloaded. Raises InputError if there is none."""
    if name and not name.startswith("etcd/"):
        check_files_exist(Path(name))
        return Path(name)
    # Slow: it imports boto3.
    from bedplate.account.bundle import RegionStore

    store = RegionStore(open_account(plan), plan, plan.home.name)
    keys = sorted(store.keys("etcd/"), key=lambda key: key.rpartition("/")[2])
    if name and name not in keys:
        fix = f"write a file, or one of {', '.join(keys[-3:])}" if keys else "name an existing file"
        raise InputError(f"no snapshot {name}", fix=fix)
    if not keys:
        raise InputError(f"no snapshot in {store.bucket}", fix="name a file, such as one copied from a member's volume")
    key = name or keys[-1]
    file = folder / key.rpartition("/")[2]
    show([f"download {key}"])
    store.save(key, file)
    return file
