"""Leader election by a Lease, so that one of several controllers acts; and the leader's state, in a ConfigMap."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from lightkube.models.coordination_v1 import LeaseSpec
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.coordination_v1 import Lease
from lightkube.resources.core_v1 import ConfigMap

from bedplate.errors import BedplateError
from bedplate.kubernetes.client import ClusterClient, Conflict, Missing

NAME, NAMESPACE = "bedplate-capacity", "kube-system"
DURATION = 60
"""Seconds after which another controller may take a Lease that was not renewed."""
_RENEW = 10.0
# The leader stops earlier than that: clocks differ in speed, and a call to the API server takes time.
_HOLD = DURATION * 2 / 3


@dataclass
class Leadership:
    """The claim of one controller, `identity`, to be the leader."""

    client: ClusterClient
    identity: str
    monotonic: Callable[[], float] = time.monotonic
    name: str = NAME
    _renewed: float | None = field(default=None, init=False)
    _version: str | None = field(default=None, init=False)
    """The resourceVersion of the Lease in the last answer. Its age is measured on our clock, never by `renewTime`."""
    _seen: float = field(default=0.0, init=False)
    """The time on our clock of the first answer with that version."""
    holder: str = field(default="", init=False)
    """The identity in the last answer; empty for no leader."""

    def hold(self) -> bool:
        """Return whether this controller is the leader now; acquires or renews the Lease when that is due."""
        now = self.monotonic()
        if self._renewed is not None and now - self._renewed < _RENEW:
            return True
        try:
            is_ours = self._claim(now)
        except Conflict:
            is_ours = False
        except BedplateError:
            # The API server did not answer: this controller stays the leader until _HOLD seconds have passed.
            return self._renewed is not None and now - self._renewed < _HOLD
        # The time before the call, which is never later than the renewal.
        self._renewed = now if is_ours else None
        return is_ours

    def release(self) -> None:
        """Let another controller take over at once, if this one is the leader."""
        if self._renewed is None or self._version is None:
            return
        self._renewed = None
        lease = self._lease("", self._version)
        try:
            self.client.call("replace Lease", lambda api: api.replace(lease), attempts=1)
        except BedplateError:
            return  # The Lease expires after DURATION.

    def _claim(self, now: float) -> bool:
        lease = self.client.find(Lease, self.name, NAMESPACE, attempts=2)
        if lease is None:
            self._write(self._lease(self.identity, None), is_new=True)
            return True
        version = str(lease.metadata.resourceVersion) if lease.metadata else ""
        holder = (lease.spec.holderIdentity if lease.spec else None) or ""
        if version != self._version:
            self._version, self._seen = version, now
        self.holder = holder
        is_free = not holder or holder == self.identity or now - self._seen > DURATION
        if is_free:
            self._write(self._lease(self.identity, version), is_new=False)
        return is_free

    def _write(self, lease: Lease, *, is_new: bool) -> None:
        written = self.client.call(
            "write Lease", lambda api: api.create(lease) if is_new else api.replace(lease), attempts=1
        )
        self._version = str(written.metadata.resourceVersion) if written.metadata else None
        self._seen, self.holder = self.monotonic(), self.identity

    def _lease(self, holder: str, version: str | None) -> Lease:
        meta = ObjectMeta(name=self.name, namespace=NAMESPACE, resourceVersion=version)
        spec = LeaseSpec(holderIdentity=holder, leaseDurationSeconds=DURATION, renewTime=datetime.now(UTC))
        return Lease(metadata=meta, spec=spec)


def read_holder(client: ClusterClient, name: str = NAME) -> str:
    """Return the identity of the leading controller; empty for none."""
    lease = client.find(Lease, name, NAMESPACE)
    return (lease.spec.holderIdentity if lease and lease.spec else None) or ""


IDLE, MEMORY = "state.json", "memory.json"
"""The keys of the ConfigMap: the time since which each node is idle, and the memory of the planner."""


@dataclass
class StateStore:
    """The ConfigMap with the state of the leader: texts by key. Only the leader writes it, and only after a change."""

    client: ClusterClient
    _last: Mapping[str, str] = field(default_factory=dict)

    def read(self) -> Mapping[str, str]:
        """Return the texts by key; empty before the first write."""
        stored = self.client.find(ConfigMap, NAME, NAMESPACE)
        self._last = dict((stored and stored.data) or {})
        return self._last

    def write(self, texts: Mapping[str, str]) -> None:
        """Replace all texts by these."""
        if texts == self._last:
            return
        meta = ObjectMeta(name=NAME, namespace=NAMESPACE)
        stored = ConfigMap(metadata=meta, data=dict(texts))
        try:
            self.client.call("replace ConfigMap", lambda api: api.replace(stored))
        except Missing:
            self.client.call("create ConfigMap", lambda api: api.create(stored))
        self._last = texts
