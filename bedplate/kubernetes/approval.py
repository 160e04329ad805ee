"""Decisions about nodes, from what they request and what AWS and the plan report: a pure part of the approver.

A certificate is approved only for the name of the machine that requests it:

- A worker in the cloud publishes the SHA-256 of its public key below its own id in the bucket of its region, where AWS
  lets no other machine write. A request for the name of an instance must have that key.
- The token of a machine of a site belongs to a group that names the machine.
- A node renews its certificate with its certificate. While it is ready, no token gives it another one.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256
from types import MappingProxyType

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, ExtensionOID, NameOID

from bedplate.kubernetes.demand import GATE
from bedplate.plan.cluster import BOOTSTRAPPERS, WORKERS, machine_group, region_of_node

CLIENT, SERVING = "kubernetes.io/kube-apiserver-client-kubelet", "kubernetes.io/kubelet-serving"
_USER, _GROUP, _TOKEN_USER = "system:node:", "system:nodes", "system:bootstrap:"
_USAGES = MappingProxyType({CLIENT: "client auth", SERVING: "server auth"})
_PURPOSES = MappingProxyType({CLIENT: ExtendedKeyUsageOID.CLIENT_AUTH, SERVING: ExtendedKeyUsageOID.SERVER_AUTH})
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
    """A machine that may be a node; an instance was `launched` at a Unix time.

    `key` is the SHA-256 of the public key that an instance has published, if any.
    """

    addresses: frozenset[str]
    instance: str | None = None
    key: str | None = None
    launched: float | None = None


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


def decide(
    request: CertificateRequest, inventory: Inventory, ready: Mapping[str, float] = MappingProxyType({})
) -> Decision:
    """Return what happens to a request of one of the two signers for nodes.

    `ready` is when each Node that is ready was made, in Unix time.
    """
    try:
        name, content = _parse(request)
    except _Malformed as error:
        return Decision(Answer.DENY, str(error))
    machine = inventory.machines.get(name)
    if machine is None:
        return _without_machine(request, name, inventory)
    if request.signer == SERVING:
        return _decide_serving(request, name, content, machine)
    if content.names:
        return Decision(Answer.DENY, "a client certificate of a node has no other names")
    if _is_node(request, name):
        return Decision(Answer.APPROVE, f"{name} renews its certificate")
    if name in ready and (machine.launched or 0.0) <= ready[name]:
        return Decision(Answer.DENY, f"{name} is ready: its certificate is renewed without a token")
    return _decide_token(request, name, content.key, machine)


def _without_machine(request: CertificateRequest, name: str, inventory: Inventory) -> Decision:
    region = region_of_node(name)
    if region in inventory.silent:
        return Decision(Answer.WAIT, f"EC2 has not answered for {region}")
    reason = f"no machine of the fleet has the name {name}"
    return Decision(Answer.DENY if request.age > PATIENCE else Answer.WAIT, reason)


def _decide_token(request: CertificateRequest, name: str, key: str, machine: KnownMachine) -> Decision:
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
    if key != machine.key:
        return Decision(Answer.DENY, f"not the key that {machine.instance} has published")
    return Decision(Answer.APPROVE, f"the key of {machine.instance}")


def _decide_serving(request: CertificateRequest, name: str, content: "_Content", machine: KnownMachine) -> Decision:
    if not _is_node(request, name):
        return Decision(Answer.DENY, f"{request.user} cannot request a certificate of {name}")
    if len(content.names) > _MOST_NAMES:
        return Decision(Answer.DENY, f"{len(content.names)} names, at most {_MOST_NAMES}")
    foreign = sorted(content.names - machine.addresses - {name})
    if foreign or not content.names:
        return Decision(Answer.DENY, f"{_shown(foreign) or 'no address'}: not of {name}")
    return Decision(Answer.APPROVE, f"the addresses of {name}")


def _is_node(request: CertificateRequest, name: str) -> bool:
    return request.user == f"{_USER}{name}" and _GROUP in request.groups


def _shown(names: Iterable[str]) -> str:
    """Return names that somebody else chose, for a message: no control characters, and not too long."""
    return ascii(", ".join(names))[1:-1][:_LONGEST_REASON]


_LARGEST, _MOST_NAMES, _LONGEST_REASON = 8192, 16, 200
"""Bytes of a request, and alternative names in one: kubelet's have less than 1,000 bytes and three names."""
_NODE_NAME = re.compile(r"[a-z0-9.-]{1,253}", re.ASCII)
# Its only use is to encode a request anew: the encoding has the size of that of another key of this kind.
_TWIN_KEY = ec.generate_private_key(ec.SECP256R1())


@dataclass(frozen=True, slots=True)
class _Content:
    """The content of a request or of a certificate: its subject, the SHA-256 of its public key, all alternative names.

    A name of another kind is one that no machine has.
    """

    subject: tuple[tuple[str, str], ...]
    key: str
    names: frozenset[str]

    @property
    def node(self) -> str:
        """The node name that the subject should have."""
        return dict(self.subject).get(NameOID.COMMON_NAME.dotted_string, "").removeprefix(_USER)


def requested_name(pem: bytes) -> str:
    """Return the node name in a request; empty for a malformed one."""
    try:
        name = _read_request(pem).node
    except _Malformed:
        return ""
    return name if _NODE_NAME.fullmatch(name) else ""


def _parse(request: CertificateRequest) -> tuple[str, _Content]:
    """Return the node name in a request, and its content; raise _Malformed."""
    content = _read_request(request.pem)
    name = content.node
    entries = {NameOID.COMMON_NAME: f"{_USER}{name}", NameOID.ORGANIZATION_NAME: _GROUP}
    subject = tuple(sorted((oid.dotted_string, value) for oid, value in entries.items()))
    if not _NODE_NAME.fullmatch(name) or content.subject != subject:
        raise _Malformed(f"the subject must be O={_GROUP}, CN={_USER}NAME")
    usage = _USAGES[request.signer]
    if usage not in request.usages or not request.usages <= _COMMON_USAGES | {usage}:
        raise _Malformed(f"the usages must be {usage} and digital signature")
    return name, content


def _read_request(pem: bytes) -> _Content:
    """Return the content of a request in canonical form; raise _Malformed for any other text.

    The API server and the signer read it with another parser, which may find another request in a text that is not
    canonical. So the text must be the encoding of what was parsed, and of nothing else.
    """
    if len(pem) > _LARGEST:
        raise _Malformed(f"larger than {_LARGEST} bytes")
    with _reading("signing request"):
        csr = x509.load_pem_x509_csr(pem)
        content, key = _content(csr), _encoded_key(csr)
        extensions = [entry for entry in csr.extensions if entry.oid == ExtensionOID.SUBJECT_ALTERNATIVE_NAME]
        builder = x509.CertificateSigningRequestBuilder(subject_name=csr.subject, extensions=extensions)
        twin = builder.sign(_TWIN_KEY, SHA256())
        is_canonical = csr.public_bytes(Encoding.PEM) == pem and csr.is_signature_valid
        encoding = twin.tbs_certrequest_bytes.replace(_encoded_key(twin), key)
        if not is_canonical or csr.tbs_certrequest_bytes != encoding:
            raise _Malformed("not the canonical text of a signing request with a key of P-256, its name and addresses")
    return content


def _read_certificate(pem: bytes) -> tuple[_Content, frozenset[str]]:
    """Return the content of a certificate and its purposes; raise _Malformed."""
    with _reading("certificate"):
        certificate = x509.load_pem_x509_certificate(pem)
        purposes = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
        return _content(certificate), frozenset(purpose.dotted_string for purpose in purposes)


@contextmanager
def _reading(kind: str) -> Iterator[None]:
    """Raise _Malformed for each failure to read what a stranger has written, whatever the parser raises."""
    try:
        yield
    except (_Malformed, KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # noqa: BLE001  a panic in the parser's own language is no Exception
        raise _Malformed(f"not a {kind} in PEM: {type(error).__name__}") from None


def _content(source: x509.CertificateSigningRequest | x509.Certificate) -> _Content:
    subject = tuple(sorted((entry.oid.dotted_string, str(entry.value)) for entry in source.subject))
    return _Content(subject, sha256(_encoded_key(source)).hexdigest(), _names(source.extensions))


def _encoded_key(source: x509.CertificateSigningRequest | x509.Certificate) -> bytes:
    return source.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def _names(extensions: x509.Extensions) -> frozenset[str]:
    try:
        names = extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return frozenset()
    kinds = (x509.DNSName, x509.IPAddress)
    return frozenset(str(name.value) if isinstance(name, kinds) else type(name).__name__ for name in names)


def difference(request: bytes, signer: str, certificate: bytes) -> str:
    """Return in what an issued certificate differs from the approved request; empty if in nothing."""
    try:
        approved, (issued, purposes) = _read_request(request), _read_certificate(certificate)
    except _Malformed as error:
        return f"cannot be read: {error}"
    if issued.subject != approved.subject:
        return f"another subject: {_shown(value for _, value in issued.subject)}"
    if issued.key != approved.key:
        return "another key"
    if issued.names != approved.names:
        return f"other names: {_shown(sorted(issued.names ^ approved.names))}"
    return "" if purposes == {_PURPOSES[signer].dotted_string} else "another purpose"


_PASSED, _UNKNOWN = "passed", "unknown"
_REPORTS = frozenset({"pending", "hardware", "software"})


def gate_taint(annotations: Mapping[str, str], taint: str | None) -> str | None:
    """Return the value that the taint of the gate must get, empty to remove it; None if it stays as it is.

    The value is the report of the node: that no gate has run since its boot, or what is broken. Another one is unknown.
    """
    report = annotations.get(GATE)
    if report is None:
        return None
    if report == _PASSED:
        return None if taint is None else ""
    wanted = report if report in _REPORTS else _UNKNOWN
    return None if wanted == taint else wanted


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
