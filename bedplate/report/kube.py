"""Reports of the cluster: its status, and what an apply of the add-ons has changed."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, astuple
from datetime import UTC, datetime, timedelta

from bedplate.kubernetes.apply import Applied
from bedplate.kubernetes.health import snapshot_age
from bedplate.kubernetes.members import MemberStatus
from bedplate.kubernetes.status import ClusterStatus
from bedplate.report.columns import aligned, counted


def status_lines(status: ClusterStatus) -> Iterator[str]:
    """Yield members, nodes by pool, add-ons, and what is wrong."""
    yield f"Kubernetes {status.version}"
    yield f"planned: {status.planned}"
    ends = [(member.name, member.certificate) for member in status.members]
    members = [(name, f"{end.astimezone(UTC):%Y-%m-%d}" if end else "no answer") for name, end in ends]
    yield from aligned([("member", "certificate until"), *members])
    head = ("nodes", "all", "ready", "gated", "cordoned", "kubelet", "containerd")
    rows = [[_cell(value) for value in astuple(group)] for group in status.nodes]
    yield from aligned([head, *rows], right=(1, 2, 3, 4))
    addons = [(addon.name, f"{addon.ready} of {addon.desired} pods ready") for addon in status.addons]
    yield from aligned(addons) or ("no add-ons: run `bedplate kube addons apply`",)
    yield from aligned([(f"leader of {name}", leader or "none") for name, leader in status.leaders.items()])
    yield from (f"waiting request for a certificate: {row}" for row in status.waiting)
    yield from (f"fault: {fault}" for fault in status.faults)


def _cell(value: object) -> str:
    return ", ".join(value) or "-" if isinstance(value, tuple) else str(value)


def etcd_lines(statuses: Mapping[str, MemberStatus], now: datetime) -> Iterator[str]:
    """Yield a row for the etcd of each member that answers."""
    rows = [
        (name, status.cluster or "-", f"{status.size:,}", f"{status.used:,}", status.version, _age(status, now))
        for name, status in statuses.items()
    ]
    yield from aligned([("etcd", "cluster", "bytes", "used", "version", "snapshot"), *rows], right=(2, 3))


def _age(status: MemberStatus, now: datetime) -> str:
    age = snapshot_age(status, now)
    return "none" if age is None else f"{age / timedelta(minutes=1):.0f} min ago"


def etcd_document(statuses: Mapping[str, MemberStatus]) -> list[dict[str, object]]:
    """Return all that members report as values of a JSON document."""
    return [{"name": name, **asdict(status)} for name, status in statuses.items()]


def status_document(status: ClusterStatus) -> dict[str, object]:
    """Return the status as one JSON document."""
    ends = [(member.name, member.certificate) for member in status.members]
    members = [{"name": name, "certificate": end.isoformat() if end else None} for name, end in ends]
    return {**asdict(status), "members": members}


def applied_lines(applied: Applied) -> Iterator[str]:
    """Yield what an apply has changed."""
    yield from (f"deleted {key}" for key in applied.deleted)
    for key in applied.kept:
        if key.kind == "Namespace":
            command = f"kubectl delete namespace {key.name}"
            yield f"closed {key}, which is not declared: nothing starts there; `{command}` deletes it with all it has"
    changed = f"{counted(len(applied.changed), 'object')} changed" if applied.changed else "no changes"
    yield f"{changed}, {applied.total} in all"
