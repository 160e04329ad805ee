"""Snapshots of etcd: the names that members give them, which prove who took them, and the choice of one to restore.

A name is `MEMBER_TIME_CLUSTER_REVISION_MAC.db`. The MAC is made with a key that only members and operators have, so who
may write to the bucket cannot make a cluster with rights of their own.
"""

import hmac
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import file_digest
from pathlib import Path

from bedplate.errors import InputError

PREFIX = "etcd/"
_NAME = re.compile(
    r"(?P<member>[a-z0-9.-]+)_(?P<time>\d{8}T\d{6}Z)_(?P<cluster>[0-9a-f]{16})_(?P<revision>\d{1,19})"
    r"_(?P<mac>[0-9a-f]{64})\.db",
    re.ASCII,
)
_TIME = "%Y%m%dT%H%M%SZ"
_CLOCK = timedelta(minutes=5)
_UNSIGNED = (
    "take a snapshot that a member has signed; `--unsigned` accepts it: who made it can be administrator of the cluster"
)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The facts in the name of a signed snapshot."""

    name: str
    member: str
    time: datetime
    cluster: str
    revision: str
    mac: str

    def lines(self, size: int, now: datetime) -> Iterator[str]:
        """Yield what an operator must see before a restore."""
        age = f"{(now - self.time) / timedelta(hours=1):.1f} h ago"
        yield f"snapshot of {self.member}, {self.time:%Y-%m-%d %H:%M} UTC ({age}), {size:,} bytes"
        yield f"etcd cluster {self.cluster}, revision {self.revision}"


def parse_name(name: str) -> Snapshot | None:
    """Return the facts in a file name; None for a name that no member gives."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    try:
        time = datetime.strptime(match["time"], _TIME).replace(tzinfo=UTC)
    except ValueError:
        return None
    return Snapshot(name, match["member"], time, match["cluster"], match["revision"], match["mac"])


def newest_key(keys: Iterable[str], members: Collection[str], now: datetime) -> str:
    """Return the key of the newest snapshot, below the folder of the member that took it; empty for none."""
    times: dict[str, datetime] = {}
    for key in keys:
        folder, _, name = key.removeprefix(PREFIX).rpartition("/")
        snapshot = parse_name(name)
        if snapshot and not _refusal(snapshot, members, now) and snapshot.member == folder:
            times[key] = snapshot.time
    return max(times, key=lambda key: times[key], default="")


def check_snapshot(file: Path, name: str, key: bytes, members: Collection[str], now: datetime) -> Snapshot:
    """Return the facts of a snapshot that a member of the plan has signed. Raises InputError for any other file."""
    snapshot = parse_name(name)
    if snapshot is None:
        raise InputError(f"{name} is not signed by a control plane member", fix=_UNSIGNED)
    if reason := _refusal(snapshot, members, now):
        raise InputError(f"{name}: {reason}", fix=_UNSIGNED)
    with file.open("rb") as stream:
        content = file_digest(stream, "sha256").hexdigest()
    facts = f"{snapshot.member} {snapshot.time:{_TIME}} {snapshot.cluster} {snapshot.revision} {content}"
    if not hmac.compare_digest(hmac.new(key, facts.encode(), "sha256").hexdigest(), snapshot.mac):
        raise InputError(f"{name}: no control plane member of this cluster has signed this content", fix=_UNSIGNED)
    return snapshot


def _refusal(snapshot: Snapshot, members: Collection[str], now: datetime) -> str:
    if snapshot.member not in members:
        return f"no control plane member named {snapshot.member} in the fleet file"
    return "its time is in the future" if snapshot.time > now + _CLOCK else ""
