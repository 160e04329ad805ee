"""Keeps the control plane one etcd cluster: which members start, which one forms it, and which join it.

Only the first member of a new fleet forms a cluster. Its id is recorded in fleet.lock; afterwards a member starts with
data of that cluster only, or copies the data of the others.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha1

from bedplate.errors import BedplateError, InputError, PartialError
from bedplate.kubernetes.members import MemberStatus
from bedplate.plan.cluster import ClusterPlan, peer_url
from bedplate.plan.fleet import ControlPlaneMember
from bedplate.plan.record import FORMING

_RESTORE = "run `bedplate kube restore`"


@dataclass(frozen=True, slots=True)
class Formation:
    """The members to `start` with their data, the one that forms the cluster (`first`), and those that `join` it."""

    start: tuple[str, ...]
    first: str
    join: tuple[str, ...]
    errors: Mapping[str, BedplateError]


def plan_formation(cluster: ClusterPlan, statuses: Mapping[str, MemberStatus], away: Collection[str]) -> Formation:
    """Return what `kube init` does. `away` are members without an answer.

    Raises InputError if members have different clusters and none is recorded, and PartialError if members that do not
    answer could have the data of the cluster.
    """
    errors = {**stale_members(cluster, statuses), **dict(_unfit(statuses))}
    _check_same(cluster, statuses)
    names = [member.name for member in cluster.members if member.name in statuses and member.name not in errors]
    start = tuple(name for name in names if statuses[name].has_data and not statuses[name].is_ready)
    blank = tuple(name for name in names if not statuses[name].has_data)
    if is_recorded(cluster) or any(status.has_data for status in statuses.values()):
        return Formation(start, "", blank, errors)
    if cluster.authority and cluster.etcd != FORMING:
        # The lock is from before ids were recorded: all volumes are lost.
        return Formation((), "", (), {**errors, **{name: no_data(name, away) for name in blank}})
    if away or errors:
        what = f"the first start needs all members, and {', '.join((*away, *errors))} cannot start"
        waiting = {name: PartialError(f"{name}: {what}", fix="start them first") for name in blank}
        return Formation((), "", (), {**errors, **waiting})
    return Formation((), blank[0], blank[1:], {})


def _unfit(statuses: Mapping[str, MemberStatus]) -> Iterator[tuple[str, BedplateError]]:
    for name, status in statuses.items():
        if status.is_restoring:
            yield name, PartialError(f"{name} is in a restore that has not ended", fix=f"{_RESTORE} again")
        elif status.is_ready and not status.cluster:
            fix = f"run `bedplate node apply {name}`"
            yield name, PartialError(f"{name} reports no id of its etcd cluster", fix=fix)


def is_recorded(cluster: ClusterPlan) -> bool:
    """Return whether the lock has the id of the cluster."""
    return cluster.etcd not in ("", FORMING)


def adopted_id(cluster: ClusterPlan, statuses: Mapping[str, MemberStatus], away: Collection[str]) -> str:
    """Return the id to record: that of all members that run. Raises as `plan_formation`."""
    _check_same(cluster, statuses)
    ids = {status.cluster for status in statuses.values() if status.is_ready and status.cluster}
    if is_recorded(cluster) or not ids:
        return cluster.etcd
    if away:
        what = f"the id of the etcd cluster is not recorded, and {', '.join(away)} may have another one"
        raise PartialError(what, fix=f"start {', '.join(away)}, then run `bedplate kube init`")
    return ids.pop()


def _check_same(cluster: ClusterPlan, statuses: Mapping[str, MemberStatus]) -> None:
    ids = {name: status.cluster for name, status in statuses.items() if status.cluster}
    if not is_recorded(cluster) and len(set(ids.values())) > 1:
        what = f"members have different etcd clusters: {', '.join(f'{name} {id_}' for name, id_ in ids.items())}"
        raise InputError(what, fix="run `bedplate kube restore` with a snapshot of the right one")


def stale_members(cluster: ClusterPlan, statuses: Mapping[str, MemberStatus]) -> dict[str, BedplateError]:
    """Return the errors of members whose data is of another cluster, or that the others have removed from etcd."""
    listed = {member.url for status in running(cluster, statuses).values() for member in status.etcd}
    errors: dict[str, BedplateError] = {}
    for member in cluster.members:
        status = statuses.get(member.name)
        if status is None or not status.has_data or not is_recorded(cluster):
            continue
        fix = f"run `bedplate kube member replace {member.name}`, which keeps that data in data.before"
        if status.cluster not in ("", cluster.etcd):
            what = f"{member.name} has data of etcd cluster {status.cluster}, and the fleet has {cluster.etcd}"
            errors[member.name] = PartialError(what, fix=fix)
        elif listed and peer_url(member) not in listed:
            what = f"{member.name} has old data: the other members have removed it from etcd"
            errors[member.name] = PartialError(what, fix=fix)
    return errors


def running(cluster: ClusterPlan, statuses: Mapping[str, MemberStatus]) -> dict[str, MemberStatus]:
    """Return the members that run in the recorded cluster; before one is recorded, all that run."""
    return {
        name: status
        for name, status in statuses.items()
        if status.is_ready and (status.cluster == cluster.etcd or not is_recorded(cluster))
    }


def remaining_members(cluster: ClusterPlan, without: Collection[str]) -> tuple[ControlPlaneMember, ...]:
    """Return the members but some. Raises InputError for an unknown name, and if they are not a majority.

    Fewer could be a second cluster: the others may run, and only be unreachable for the operator.
    """
    names = [member.name for member in cluster.members]
    for name in without:
        if name not in names:
            raise InputError(f"no control plane member named {name}", fix=f"write one of {', '.join(names)}")
    remaining = tuple(member for member in cluster.members if member.name not in without)
    if len(remaining) * 2 <= len(names):
        what = f"{len(remaining)} of {len(names)} members are no majority: the others may run as a cluster"
        raise InputError(what, fix=f"start {len(names) // 2 + 1} members first")
    return remaining


def no_data(name: str, away: Iterable[str]) -> PartialError:
    """Return the error of a member without data while no member of the cluster runs."""
    names = ", ".join(away)
    fix = f"start {names} first; if their volumes are lost too, {_RESTORE}" if names else _RESTORE
    return PartialError(f"{name} has no data, and no member of the cluster runs", fix=fix)


def etcd_cluster_id(members: Iterable[ControlPlaneMember], token: str) -> str:
    """Return the id that etcd gives to a new cluster of these members.

    Source: etcd 3.7, server/etcdserver/api/membership, computeMemberID and genID.
    """
    ids = sorted(_sha1(f"{peer_url(member)}{token}".encode()) for member in members)
    return _sha1(b"".join(ids)).hex()


def _sha1(data: bytes) -> bytes:
    return sha1(data, usedforsecurity=False).digest()[:8]
