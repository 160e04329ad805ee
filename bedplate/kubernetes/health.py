"""What is wrong with etcd on the members: their clusters, alarms, database, votes and snapshots."""

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta

from bedplate.errors import BedplateError
from bedplate.kubernetes.formation import is_recorded, stale_members
from bedplate.kubernetes.members import MemberStatus
from bedplate.kubernetes.snapshots import parse_name
from bedplate.plan.cluster import ETCD_QUOTA, ClusterPlan, peer_url

# Members take one every hour, up to 15 minutes late.
_OLDEST = timedelta(hours=2)


def snapshot_age(status: MemberStatus, now: datetime) -> timedelta | None:
    """Return the age of a member's newest snapshot; None if it has none that is signed."""
    snapshot = parse_name(status.snapshot)
    return now - snapshot.time if snapshot else None


def etcd_faults(
    cluster: ClusterPlan, statuses: Mapping[str, MemberStatus], errors: Mapping[str, BedplateError], now: datetime
) -> Iterator[str]:
    """Yield what is wrong with the etcd of the members, with the fix."""
    for error in (*errors.values(), *stale_members(cluster, statuses).values()):
        yield f"{error.what}: {error.fix}"
    ids = {status.cluster for status in statuses.values()} - {""}
    if len(ids) > 1 and not is_recorded(cluster):
        yield "members have different etcd clusters: run `bedplate kube restore` with a snapshot of the right one"
    elif ids and not is_recorded(cluster):
        yield "the id of the etcd cluster is not recorded: run `bedplate kube init`"
    learners = {entry.url for status in statuses.values() for entry in status.etcd if entry.is_learner}
    for member in cluster.members:
        if member.name in statuses:
            yield from _member_faults(member.name, statuses[member.name], now)
            if peer_url(member) in learners:
                yield f"{member.name} has no vote in etcd: run `bedplate kube init`"


def _member_faults(name: str, status: MemberStatus, now: datetime) -> Iterator[str]:
    if not status.has_data:
        yield f"{name} has no data of etcd: run `bedplate kube init`"
        return
    if not status.size:
        yield f"{name}: etcd does not answer: `bedplate node logs {name}` shows why"
    for alarm in sorted({*status.alarms}):
        fix = "delete what fills it; it is defragmented within the hour" if alarm == "NOSPACE" else "restore its member"
        yield f"{name}: etcd has the alarm {alarm}: {fix}"
    if status.used > ETCD_QUOTA * 3 / 4:
        yield f"{name}: etcd uses {status.used:,} of {ETCD_QUOTA:,} bytes: delete objects that nobody needs"
    age = snapshot_age(status, now)
    if age is None or age > _OLDEST:
        yield f"{name}: no signed snapshot of the last 2 hours: `bedplate node logs {name}` shows why"
