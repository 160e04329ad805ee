"""Decisions about nodes, from what they request and what AWS and the plan report: a pure part of the approver.

A certificate is approved only for the name of the machine that requests it:

- A worker in the cloud publishes the SHA-256 of its public key below its own id in the bucket of its region, where AWS
  lets no other machine write. A request for the name of an instance must have that key.
- The token of a machine of a site belongs to a group that names the machine.
- A node renews its certificate with its certificate.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256
from types import MappingProxyType

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509.oid import NameOID

from bedplate.plan.cluster import BOOTSTRAPPERS, WORKERS, machine_group, region_of_node

CLIENT, SERVING = "kubernetes.io/kube-apiserver-client-kubelet", "kubernetes.io/kubelet-serving"
_USER, _GROUP, _TOKEN_USER = "system:node:", "system:nodes", "system:bootstrap:"
_USAGES = MappingProxyType({CLIENT: "client auth", SERVING: "server auth"})
_COMMON_USAGES = frozenset({"digital signature", "key encipherment"})
# EC2 may list a new instance late, and a machine publishes its key in the same seconds.
PATIENCE = 90.0
"""Seconds after which a request of an unknown machine is denied."""


class Answer(StrEnum):
    """The decision about a request."""

    APPROVE = "approve"
    DENY = "deny"
    WAIT = "wait"


@dataclass(frozen=True, slots=True)
class Decision:
    """An answer, and its reason for the operator."""

    answer: Answer
    reason: str


@dataclass(frozen=True, slots=True)
class KnownMachine:
    """A machine that may be a node. `key` is the SHA-256 of the public key that an instance has published, if any."""

    addresses: frozenset[str]
    instance: str | None = None
    key: str | None = None


@dataclass(frozen=True, slots=True)
class Inventory:
    """The machines that exist, by node name; AWS has answered for `regions`, and not for `silent` ones."""

    machines: Mapping[str, KnownMachine]
    regions: frozenset[str]
    silent: frozenset[str] = frozenset()

    def is_missing(self, name: str) -> bool:
        """Return whether a name is that of a pool's instance, and AWS has answered that there is none."""
        return name not in self.machines and region_of_node(name) in self.regions


@dataclass(frozen=True, slots=True)
class CertificateRequest:
    """A request for a node's certificate; `pem` is what the machine has signed, `age` is in seconds."""

    signer: str
    user: str
    groups: frozenset[str]
    usages: frozenset[str]
    pem: bytes
    age: float


class _Malformed(Exception):
    """The request is not one that kubelet or a joining machine makes."""


def decide(request: CertificateRequest, inventory: Inventory) -> Decision:
    """Return what happens to a request of one of the two signers for nodes."""
    try:
        name, csr = _parse(request)
    except _Malformed as error:
        return Decision(Answer.DENY, str(error))
    machine = inventory.machines.get(name)
    if machine is None:
        return _without_machine(request, name, inventory)
    if request.signer == SERVING:
        return _decide_serving(request, name, csr, machine)
    return _decide_client(request, name, csr, machine)


def _without_machine(request: CertificateRequest, name: str, inventory: Inventory) -> Decision:
    region = region_of_node(name)
    if region in inventory.silent:
        return Decision(Answer.WAIT, f"EC2 has not answered for {region}")
    reason = f"no machine of the fleet has the name {name}"
    return Decision(Answer.DENY if request.age > PATIENCE else Answer.WAIT, reason)


def _decide_client(
    request: CertificateRequest, name: str, csr: x509.CertificateSigningRequest, machine: KnownMachine
) -> Decision:
    if _names(csr):
        return Decision(Answer.DENY, "a client certificate of a node has no other names")
    if _is_node(request, name):
        return Decision(Answer.APPROVE, f"{name} renews its certificate")
    if not request.user.startswith(_TOKEN_USER) or BOOTSTRAPPERS not in request.groups:
        return Decision(Answer.DENY, f"{request.user} cannot request a certificate of {name}")
    if machine.instance is None:
        is_own = machine_group(name) in request.groups
        reason = f"a token for {name}" if is_own else f"the token is not for {name}"
        return Decision(Answer.APPROVE if is_own else Answer.DENY, reason)
    if WORKERS not in request.groups:
        return Decision(Answer.DENY, f"the token is not for {name}")
    if machine.key is None:
        reason = f"{machine.instance} has not published a key"
        return Decision(Answer.DENY if request.age > PATIENCE else Answer.WAIT, reason)
    if key_hash(csr) != machine.key:
        return Decision(Answer.DENY, f"not the key that {machine.instance} has published")
    return Decision(Answer.APPROVE, f"the key of {machine.instance}")


def _decide_serving(
    request: CertificateRequest, name: str, csr: x509.CertificateSigningRequest, machine: KnownMachine
) -> Decision:
    if not _is_node(request, name):
        return Decision(Answer.DENY, f"{request.user} cannot request a certificate of {name}")
    names = _names(csr)
    foreign = sorted(names - machine.addresses - {name})
    if foreign or not names:
        return Decision(Answer.DENY, f"{', '.join(foreign) or 'no address'}: not of {name}")
    return Decision(Answer.APPROVE, f"the addresses of {name}")


def _is_node(request: CertificateRequest, name: str) -> bool:
    return request.user == f"{_USER}{name}" and _GROUP in request.groups


def requested_name(pem: bytes) -> str:
    """Return the node name in a request; empty for a malformed one."""
    try:
        names = x509.load_pem_x509_csr(pem).subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    except (ValueError, UnsupportedAlgorithm):
        return ""
    return str(names[0].value).removeprefix(_USER) if names else ""


def _parse(request: CertificateRequest) -> tuple[str, x509.CertificateSigningRequest]:
    """Return the node name in a request, and the parsed request; raise _Malformed."""
    try:
        csr = x509.load_pem_x509_csr(request.pem)
        is_signed = csr.is_signature_valid
    except (ValueError, UnsupportedAlgorithm):
        raise _Malformed("not a signing request in PEM") from None
    subject = {attribute.oid: str(attribute.value) for attribute in csr.subject}
    name = subject.get(NameOID.COMMON_NAME, "").removeprefix(_USER)
    planned = {NameOID.COMMON_NAME: f"{_USER}{name}", NameOID.ORGANIZATION_NAME: _GROUP}
    if not is_signed or subject != planned or len(list(csr.subject)) != len(planned):
        raise _Malformed(f"the subject must be O={_GROUP}, CN={_USER}NAME, signed with its key")
    usage = _USAGES[request.signer]
    if usage not in request.usages or not request.usages <= _COMMON_USAGES | {usage}:
        raise _Malformed(f"the usages must be {usage} and digital signature")
    return name, csr


def _names(csr: x509.CertificateSigningRequest) -> frozenset[str]:
    """Return all alternative names; a name of another kind is one that no machine has."""
    try:
        names = csr.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return frozenset()
    except ValueError:
        return frozenset({"invalid extension"})
    kinds = (x509.DNSName, x509.IPAddress)
    return frozenset(str(name.value) if isinstance(name, kinds) else type(name).__name__ for name in names)


def key_hash(csr: x509.CertificateSigningRequest) -> str:
    """Return the SHA-256 of the public key of a request."""
    return sha256(csr.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).hexdigest()


GATE, PASSED = "bedplate/gate", "passed"
"""The taint of a new node, and the annotation in which the node reports its gate.

A kubelet may annotate its own node only, and may not change taints.
"""


def waits_for_gate(annotations: Mapping[str, str], taint_keys: Iterable[str]) -> bool:
    """Return whether the taint of the gate can be removed from a node."""
    return GATE in taint_keys and annotations.get(GATE) == PASSED


# Two answers of EC2, in case the first did not know a new instance yet.
ABSENCE = 45.0
"""Seconds for which an instance must be missing before its Node object is deleted."""


def track_absences(
    nodes: Iterable[str], inventory: Inventory, absences: Mapping[str, float], now: float
) -> Mapping[str, float]:
    """Return since when the instance of each node has been missing; nodes with an existing one are left out."""
    return {name: absences.get(name, now) for name in nodes if inventory.is_missing(name)}


def ended_nodes(absences: Mapping[str, float], now: float) -> tuple[str, ...]:
    """Return the nodes whose instances have ended."""
    return tuple(sorted(name for name, since in absences.items() if now - since >= ABSENCE))
