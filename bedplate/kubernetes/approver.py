"""The part of the approver that talks to the cluster: requests, Node objects and bootstrap tokens."""

import string
from base64 import b64decode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from secrets import choice
from time import time
from typing import Any

from lightkube.models.certificates_v1 import CertificateSigningRequestCondition, CertificateSigningRequestStatus
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.certificates_v1 import CertificateSigningRequest, CertificateSigningRequestApproval
from lightkube.resources.core_v1 import ConfigMap, Node, Secret

from bedplate.kubernetes.approval import (
    CLIENT,
    SERVING,
    Answer,
    CertificateRequest,
    Decision,
    Inventory,
    decide,
    difference,
    ended_nodes,
    gate_taint,
    requested_name,
    track_absences,
)
from bedplate.kubernetes.client import ClusterClient, Conflict, Missing, ObjectCache
from bedplate.kubernetes.demand import GATE, is_ready
from bedplate.plan.cluster import BOOTSTRAPPERS, WORKERS
from bedplate.rounds import Reports, run_round

LEASE = ALARMS = "bedplate-approver"
"""The names of the Lease, and of the ConfigMap with a sentence for each certificate that nobody approved like that."""
_SIGNERS = (CLIENT, SERVING)
_NAMESPACE = "kube-system"
TOKEN_LIFE = timedelta(hours=1)
_ALPHABET = string.ascii_lowercase + string.digits
# Source: Kubernetes documentation, "Authenticating with bootstrap tokens".
_ID_LENGTH, _SECRET_LENGTH = 6, 16

# Writes one line about an action.
Log = Callable[[str], None]


@dataclass
class Approver:
    """The requests and nodes of a cluster, by watches, and the answers of the approver."""

    client: ClusterClient
    log: Log
    absences: Mapping[str, float] = field(default_factory=dict)
    """Since when the instance of a node has been missing, by node."""
    _waiting: dict[str, str] = field(default_factory=dict)
    _verified: set[str] = field(default_factory=set)
    """The requests whose certificates were compared."""

    def __post_init__(self) -> None:
        self._requests = ObjectCache(self.client, CertificateSigningRequest)
        self._nodes = ObjectCache(self.client, Node)
        self.reports = Reports(self.log)

    def start(self) -> None:
        """List requests and nodes, and watch them. Raises BedplateError."""
        self._requests.start()
        self._nodes.start()

    def stop(self) -> None:
        """End the watches."""
        self._requests.stop()
        self._nodes.stop()

    def requested(self) -> frozenset[str]:
        """Return the node names in the pending requests. Raises PartialError if the watch has no answer."""
        return frozenset(requested_name(b64decode(request.spec.request)) for request in self._pending())

    def _pending(self) -> tuple[CertificateSigningRequest, ...]:
        requests = self._requests.objects().values()
        return tuple(request for request in requests if request.spec.signerName in _SIGNERS and is_pending(request))

    def answer(self, inventory: Inventory) -> None:
        """Approve or deny each pending request; those of unknown machines wait, and no failure stops another answer."""
        pending, ready = {_name(request): request for request in self._pending()}, self._ready()
        self._waiting = {name: reason for name, reason in self._waiting.items() if name in pending}
        for request in pending.values():
            run_round(partial(self._answer, request, inventory, ready), self.reports)

    def _answer(self, request: CertificateSigningRequest, inventory: Inventory, ready: Mapping[str, float]) -> None:
        decision, name = decide(_request(request), inventory, ready), _name(request)
        if decision.answer is not Answer.WAIT:
            if self._write(request, decision):
                self.log(f"{name}: {decision.answer}: {decision.reason}")
        elif self._waiting.get(name) != decision.reason:
            self.log(f"{name}: waits: {decision.reason}")
            self._waiting[name] = decision.reason

    def _ready(self) -> Mapping[str, float]:
        """Return when each ready node was made."""
        ready = (node.metadata for node in self._nodes.objects().values() if is_ready(node))
        return {str(metadata.name): metadata.creationTimestamp.timestamp() for metadata in ready}

    def verify(self) -> None:
        """Compare what was issued with what was approved; a difference is logged, and recorded for `kube status`."""
        requests = {name: item for name, item in self._requests.objects().items() if item.spec.signerName in _SIGNERS}
        issued = {name: item for name, item in requests.items() if item.status and item.status.certificate}
        self._verified &= issued.keys()
        for name in issued.keys() - self._verified:
            run_round(partial(self._compare, name, issued[name]), self.reports)

    def _compare(self, name: str, request: CertificateSigningRequest) -> None:
        spec, certificate = request.spec, b64decode((request.status and request.status.certificate) or "")
        if differs := difference(b64decode(spec.request), spec.signerName, certificate):
            text = f"{name} of {spec.username}: issued for something else than approved: {differs}"
            self.log(f"ALARM: {text}")
            record = ConfigMap(metadata=ObjectMeta(name=ALARMS, namespace=_NAMESPACE), data={name: text})
            self.client.call("record an alarm", lambda api: api.apply(record, field_manager=name[:128], force=True))
        self._verified.add(name)

    def follow_gates(self) -> None:
        """Remove the taint of the gate from nodes that have passed it; set it on those that report another state."""
        for node in self._nodes.objects().values():
            run_round(partial(self._follow_gate, node), self.reports)

    def _follow_gate(self, node: Any) -> None:  # noqa: ANN401  a Node
        before = next((taint.value or "" for taint in node.spec.taints or [] if taint.key == GATE), None)
        value = gate_taint(node.metadata.annotations or {}, before)
        if value is None:
            return
        kept = [taint.to_dict() for taint in node.spec.taints or [] if taint.key != GATE]
        if value:
            kept.append({"key": GATE, "value": value, "effect": "NoSchedule"})
        # The whole list is replaced, so only if the node is still as it was seen.
        patch = {"metadata": {"resourceVersion": node.metadata.resourceVersion}, "spec": {"taints": kept}}
        if self._try(partial(self.client.patch, Node, _name(node), patch)):
            self.log(f"{_name(node)}: {f'its gate is {value}' if value else 'passed its gate'}")

    def delete_ended(self, inventory: Inventory, now: float) -> None:
        """Delete the nodes whose instances have ended."""
        nodes = self._nodes.objects()
        self.absences = track_absences(nodes, inventory, self.absences, now)
        for name in ended_nodes(self.absences, now):
            # No other instance ever gets the name.
            if self.client.delete(Node, name):
                self.log(f"{name}: its instance has ended, deleted")

    def make_token(self) -> str:
        """Create a token for workers in the cloud, and return it."""
        identity, secret = (
            "".join(choice(_ALPHABET) for _ in range(length)) for length in (_ID_LENGTH, _SECRET_LENGTH)
        )
        expiration = (datetime.now(UTC) + TOKEN_LIFE).strftime("%Y-%m-%dT%H:%M:%SZ")
        content = {
            "token-id": identity,
            "token-secret": secret,
            "expiration": expiration,
            "usage-bootstrap-authentication": "true",
            "auth-extra-groups": f"{BOOTSTRAPPERS},{WORKERS}",
        }
        meta = ObjectMeta(name=f"bootstrap-token-{identity}", namespace=_NAMESPACE)
        stored = Secret(metadata=meta, type="bootstrap.kubernetes.io/token", stringData=content)
        self.client.call("create Secret", lambda api: api.create(stored))
        return f"{identity}.{secret}"

    def _write(self, request: CertificateSigningRequest, decision: Decision) -> bool:
        """Write the condition; return whether this approver decided."""
        is_approved = decision.answer is Answer.APPROVE
        condition = CertificateSigningRequestCondition(
            type="Approved" if is_approved else "Denied", status="True", reason="Bedplate", message=decision.reason
        )
        status = CertificateSigningRequestStatus(conditions=[condition])
        decided = CertificateSigningRequestApproval(spec=request.spec, metadata=request.metadata, status=status)
        name = _name(request)
        return self._try(partial(self.client.call, f"answer {name}", lambda api: api.replace(decided, name)))

    @staticmethod
    def _try(change: Callable[[], object]) -> bool:
        """Make a change; return False if the object has changed or was deleted: the next pass reads it again."""
        try:
            change()
        except (Conflict, Missing):
            return False
        return True


def _name(item: Any) -> str:  # noqa: ANN401  a request or a node
    return str(item.metadata.name)


def is_pending(request: CertificateSigningRequest) -> bool:
    """Return whether a request has no answer yet."""
    return not (request.status and (request.status.conditions or request.status.certificate))


def _request(request: CertificateSigningRequest) -> CertificateRequest:
    spec, created = request.spec, request.metadata.creationTimestamp if request.metadata else None
    return CertificateRequest(
        signer=spec.signerName,
        user=spec.username or "",
        groups=frozenset(spec.groups or ()),
        usages=frozenset(spec.usages or ()),
        pem=b64decode(spec.request),
        age=time() - created.timestamp() if created else 0.0,
    )
