"""Machines join a real API server by the agent's path, and the approver answers. AWS is a table of the test."""

import json
import subprocess
from base64 import b64decode, b64encode
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from time import time
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509.oid import NameOID
from lightkube import ApiError
from lightkube.models.certificates_v1 import (
    CertificateSigningRequestCondition,
    CertificateSigningRequestSpec,
    CertificateSigningRequestStatus,
)
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.certificates_v1 import CertificateSigningRequest, CertificateSigningRequestApproval

from bedplate.kubernetes.approval import (
    ABSENCE,
    CLIENT,
    SERVING,
    Answer,
    CertificateRequest,
    Inventory,
    KnownMachine,
    decide,
    difference,
)
from bedplate.kubernetes.approver import ALARMS
from bedplate.kubernetes.client import ClusterClient
from bedplate.kubernetes.status import read_alarms
from bedplate.plan.cluster import BOOTSTRAPPERS, WORKERS, machine_group
from bedplate.programs.program import ProgramError
from bedplate.programs.worker import join as agent
from bedplate.programs.worker.machine import KUBECONFIG
from tests.testlab.kubernetes.control_plane import FAKE, Api, ControlPlane, wait_until
from tests.testlab.kubernetes.joining import REGIONS, Approvers, JoiningMachine
from tests.testlab.kubernetes.requests import NodeKey, Texts
from tests.testlab.run import need_program

TITAN = "titan-01.cellar"
_CURRENT = "var/lib/kubelet/pki/kubelet-client-current.pem"


@pytest.fixture
def approvers(control_plane: ControlPlane, monkeypatch: pytest.MonkeyPatch) -> Iterator[Approvers]:
    """Yield running approvers of two members, and forget their decisions afterwards."""
    monkeypatch.setattr(agent, "SETTINGS_PROGRAM", "true")
    monkeypatch.setattr(agent, "_WAIT", 8.0)
    approvers = Approvers(control_plane)
    with approvers.running("control-1", "control-2"):
        yield approvers
    control_plane.kubectl("delete", "csr", "--all")


def machine(approvers: Approvers, root: Path, name: str, **address: str) -> JoiningMachine:
    """Return a machine that AWS or the plan knows: with an instance, one in the cloud."""
    addresses = frozenset({address.get("ip", "10.64.1.5")})
    approvers.machines[name] = KnownMachine(addresses, address.get("instance"))
    approvers.folder[name] = root
    return JoiningMachine(root, approvers.plane, name, cloud="instance" in address)


def whoami(machine: JoiningMachine) -> str:
    """Return the user as whom the machine's kubeconfig authenticates."""
    show = "-o=jsonpath={.status.userInfo.username}"
    command = ("kubectl", f"--kubeconfig={machine.root / KUBECONFIG}", "auth", "whoami", show)
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_a_worker_in_the_cloud_joins_with_the_approvers_token(approvers: Approvers, tmp_path: Path) -> None:
    """The worker gets the node of its own name; a second run changes nothing; no file of the worker has the token."""
    worker = machine(approvers, tmp_path, "train-0000000a.us-west-2", instance="i-00000000a")
    token = approvers.approver.make_token()

    assert worker.join(token)
    assert whoami(worker) == "system:node:train-0000000a.us-west-2"
    assert not worker.join(token)
    assert (tmp_path / _CURRENT).stat().st_mode & 0o077 == 0
    (tmp_path / "token").unlink()
    files = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert not [file for file in files if token.encode() in file.read_bytes()]
    assert len(approvers.active) == 1


def test_a_stolen_token_joins_nothing(approvers: Approvers, tmp_path: Path) -> None:
    """Another machine with the token gets no certificate: neither of a worker, nor of a member or a site's machine."""
    machine(approvers, tmp_path / "victim", "train-0000000b.us-west-2", instance="i-00000000b")
    (tmp_path / "victim/published.json").write_text(f'{{"key": "{NodeKey().hash}"}}')
    approvers.machines |= dict.fromkeys(("control-1.us-west-2", TITAN), KnownMachine(frozenset({"10.64.0.9"})))
    token = approvers.approver.make_token()
    reasons = []

    for name in ("train-0000000b.us-west-2", "control-1.us-west-2", TITAN):
        thief = JoiningMachine(tmp_path / f"as-{name}", approvers.plane, name)
        with pytest.raises(ProgramError) as refused:
            thief.join(token)
        reasons.append(str(refused.value))

    assert "not the key that i-00000000b has published" in reasons[0]
    assert all("the token is not for" in reason for reason in reasons[1:])
    options = (f"--server={approvers.plane.server}", f"--token={token}", "--kubeconfig=/dev/null")
    trust = f"--certificate-authority={approvers.plane.authority.certificate}"
    for kind in ("nodes", "pods", "secrets"):
        command = ("kubectl", *options, trust, "get", kind, "--all-namespaces")
        assert "Forbidden" in subprocess.run(command, capture_output=True, text=True, check=False).stderr


def test_a_token_of_a_site_joins_its_machine_only(approvers: Approvers, tmp_path: Path) -> None:
    """The test makes it with kubeadm as `kube join` does; another machine of the site cannot use it."""
    titan = machine(approvers, tmp_path / TITAN, TITAN, ip="192.168.40.21")
    other = machine(approvers, tmp_path / "other", "titan-02.cellar", ip="192.168.40.22")
    groups = ("--groups", BOOTSTRAPPERS, "--groups", machine_group(TITAN))
    created = approvers.plane.kubeadm("token", "create", "--ttl", "15m", "--usages", "authentication", *groups)
    token = created.strip()

    with pytest.raises(ProgramError, match=r"the token is not for titan-02\.cellar"):
        other.join(token)
    assert titan.join(token)
    assert whoami(titan) == f"system:node:{TITAN}"


def test_a_wrong_or_expired_token_is_refused(approvers: Approvers, tmp_path: Path) -> None:
    """The API server knows neither; the agent says so."""
    worker = machine(approvers, tmp_path, "train-0000000c.us-west-2", instance="i-00000000c")
    token = approvers.approver.make_token()
    secret = f"bootstrap-token-{token.partition('.')[0]}"
    past = '{"stringData": {"expiration": "2026-01-01T00:00:00Z"}}'
    approvers.plane.kubectl("patch", "secret", secret, "--namespace=kube-system", "--patch", past)

    for invalid in (token, "abcdef.0123456789abcdef"):
        with pytest.raises(ProgramError, match="refused the token: it is wrong or has expired"):
            worker.join(invalid)


def test_a_server_of_another_authority_gets_no_token(approvers: Approvers, tmp_path: Path) -> None:
    """A machine trusts the authority in its node document only. A clock that is wrong by a year says so."""
    need_program("faketime")
    worker = machine(approvers, tmp_path, "train-0000000d.us-west-2", instance="i-00000000d")
    authority = tmp_path / "etc/kubernetes/pki/ca.crt"
    right = authority.read_bytes()
    make = "openssl req -x509 -nodes -newkey ec -pkeyopt ec_paramgen_curve:P-256 -subj /CN=other"
    files = ("-keyout", str(tmp_path / "other.key"), "-out", str(authority))
    subprocess.run((*make.split(), *files), check=True, capture_output=True)

    with pytest.raises(ProgramError, match="no valid certificate of the cluster's authority"):
        worker.join(approvers.approver.make_token())
    authority.write_bytes(right)
    code = f"""
from pathlib import Path
from bedplate.programs.worker.join import Api
Api({approvers.plane.server!r}, Path({str(authority)!r}), "x").call("GET", "/")
"""
    late = subprocess.run(
        ("faketime", "-f", "+1y", "python3", "-c", code), capture_output=True, text=True, check=False, cwd=Path.cwd()
    )
    assert "certificate has expired; check the clock" in late.stderr


def test_a_passed_gate_removes_the_taint_and_a_node_cannot(approvers: Approvers, tmp_path: Path) -> None:
    """A node annotates itself, but neither changes its taints nor annotates another node."""
    name, other = "train-0000000e.us-west-2", "train-0000000f.us-west-2"
    worker = machine(approvers, tmp_path, name, instance="i-00000000e")
    approvers.machines[other] = KnownMachine(frozenset({"10.64.1.7"}), "i-00000000f")
    worker.join(approvers.approver.make_token())
    plane = approvers.plane
    for node in (name, other):
        spec = {"taints": [{"key": "bedplate/gate", "value": "pending", "effect": "NoSchedule"}]}
        document = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}, "spec": spec}
        plane.kubectl("create", "-f", "-", text=json.dumps(document))

    def as_node(*words: str) -> subprocess.CompletedProcess[str]:
        command = ("kubectl", f"--kubeconfig={tmp_path / KUBECONFIG}", *words)
        return subprocess.run(command, capture_output=True, text=True, check=False)

    def taints(node: str) -> str:
        return plane.kubectl("get", "node", node, "-o=jsonpath={.spec.taints[*].key}")

    assert "not allowed to modify taints" in as_node("taint", "node", name, "bedplate/gate-").stderr
    assert as_node("annotate", "node", other, "bedplate/gate=passed").returncode
    assert as_node("annotate", "node", name, "bedplate/gate=passed").returncode == 0
    assert wait_until(lambda: "bedplate/gate" not in taints(name), 20)
    assert "bedplate/gate" in taints(other)
    plane.kubectl("delete", "node", name, other)


def test_the_node_of_an_ended_instance_is_deleted(approvers: Approvers) -> None:
    """The node of a running instance and nodes of other names stay."""
    ended, running, foreign = "train-0000001a.us-west-2", "train-0000001b.us-west-2", "fake-1"
    approvers.machines[running] = KnownMachine(frozenset({"10.64.1.8"}), "i-00000001b")
    plane = approvers.plane
    for name in (ended, running, foreign):
        plane.kubectl(
            "create", "-f", "-", text=json.dumps({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
        )

    assert wait_until(lambda: ended in approvers.missing, 20)
    approvers.ahead = ABSENCE
    assert wait_until(lambda: plane.try_kubectl("get", "node", ended).returncode, 20)
    plane.kubectl("delete", "node", running, foreign)


# Requests that `create` makes stay without an answer.
NO_ANSWER = """\
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: no-answer}
spec:
  matchConstraints:
    resourceRules:
    - apiGroups: [certificates.k8s.io]
      apiVersions: [v1]
      operations: [UPDATE]
      resources: [certificatesigningrequests/approval]
  validations: [{expression: "!object.metadata.name.startsWith('test-')", message: nobody answers}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: no-answer}
spec: {policyName: no-answer, validationActions: [Deny]}
"""
USAGES = {CLIENT: "client auth", SERVING: "server auth"}
_READY = "-o=jsonpath={.status.conditions[?(@.type=='Ready')].status}"


def create(plane: Api, text: bytes, signer: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Create a request as an administrator; the output is its name."""
    usages = ["digital signature", USAGES[signer]]
    spec = {"request": b64encode(text).decode(), "signerName": signer, "usages": usages}
    kind = {"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest"}
    document = json.dumps({**kind, "metadata": {"generateName": "test-"}, "spec": spec})
    return plane.try_kubectl("create", "-f", "-", "-o=name", *options, text=document)


def requests(plane: Api) -> dict[str, dict[str, Any]]:
    """Return the requests by name."""
    return {item["metadata"]["name"]: item for item in json.loads(plane.kubectl("get", "csr", "-o=json"))["items"]}


def test_an_instance_that_has_joined_gets_no_second_certificate(approvers: Approvers, tmp_path: Path) -> None:
    """Somebody on the machine who publishes another key and has the token is refused while the Node is ready.

    A new start of the instance, as after a repair, may join again.
    """
    name, plane = "train-0000002a.us-west-2", approvers.plane
    worker = machine(approvers, tmp_path / "worker", name, instance="i-00000002a")
    assert worker.join(approvers.approver.make_token())
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "annotations": FAKE}}
    plane.kubectl("create", "-f", "-", text=json.dumps(node))
    assert wait_until(lambda: "True" in plane.kubectl("get", "node", name, _READY), 30)
    thief = machine(approvers, tmp_path / "thief", name, instance="i-00000002a")

    with pytest.raises(ProgramError, match=f"{name} is ready"):
        thief.join(approvers.approver.make_token())
    approvers.machines[name] = KnownMachine(frozenset(), "i-00000002a", launched=time() + 5)
    assert thief.join(approvers.approver.make_token())
    plane.kubectl("delete", "node", name)


def test_a_request_that_cannot_be_read_stops_nobody(approvers: Approvers, tmp_path: Path) -> None:
    """Requests that the API server accepts, and of which Python's parser fails, are denied; then a machine joins."""
    key, plane = NodeKey(), approvers.plane
    texts = Texts(key, TITAN, ["192.168.40.21"], ("x", ["api.lab.internal"]), 0)
    names = [create(plane, text, SERVING).stdout.strip().partition("/")[2] for text in texts.odd()]

    worker = machine(approvers, tmp_path, "train-0000002b.us-west-2", instance="i-00000002b")
    assert worker.join(approvers.approver.make_token())

    assert all(names)
    answers = [requests(plane)[name]["status"]["conditions"][0] for name in names]
    assert {answer["type"] for answer in answers} == {"Denied"}, answers


def test_a_refused_answer_stops_no_other(approvers: Approvers, tmp_path: Path) -> None:
    """While the API server refuses the answer to one request, in each round, the approver answers those after it."""
    plane, name = approvers.plane, "train-0000003a.us-west-2"
    text, worker = NodeKey().request(name), machine(approvers, tmp_path, name, instance="i-00000003a")

    def refused() -> str:
        """Return a new request if the policy refuses its answer already."""
        created = create(plane, text, SERVING).stdout.strip().partition("/")[2]
        return created if "nobody answers" in plane.try_kubectl("certificate", "approve", created).stderr else ""

    plane.kubectl("apply", "-f", "-", text=NO_ANSWER)
    try:
        assert wait_until(refused, 30)
        waiting = refused()

        assert worker.join(approvers.approver.make_token())
        assert not requests(plane)[waiting]["status"]
        assert any("nobody answers" in line for line in approvers.log)
    finally:
        plane.kubectl("delete", "-f", "-", text=NO_ANSWER)


def test_the_api_server_refuses_texts_with_two_requests(approvers: Approvers) -> None:
    """Its policy needs no parser: one BEGIN at the start, and a limited size. Requests of kubelet's form pass."""
    key, plane = NodeKey(), approvers.plane
    good = key.request("train-0000002c.us-west-2", names=["10.64.1.5"])
    sizes = [key.request("train-0000002c.us-west-2", names=["10.64.1.5", "a" * length]) for length in range(1, 7)]
    two = [f" .{' ' * length}\n".encode().join((good[:-1], good)) for length in range(3)]

    assert wait_until(lambda: "one BEGIN only" in create(plane, two[0], SERVING, "--dry-run=server").stderr, 30)
    for text in two:
        assert "one BEGIN only" in create(plane, text, SERVING).stderr
    assert "must begin with" in create(plane, b"\n" + good, SERVING).stderr
    assert "at most 8192 bytes" in create(plane, good + b" " * 8192, SERVING).stderr
    for text in (good, *sizes):
        assert create(plane, text, SERVING, "--dry-run=server").returncode == 0


@pytest.mark.parametrize("signer", [CLIENT, SERVING])
def test_the_signer_issues_what_the_approver_has_read(control_plane: ControlPlane, signer: str) -> None:
    """All generated texts that the API server accepts are signed; where the approver agrees, for the same names.

    In some the signer finds another node or another name. Each of them is denied, and what was issued is found.
    """
    key, name, plane = NodeKey(), "train-0000002d.us-west-2", control_plane
    addresses = ["10.64.1.5"] if signer == SERVING else []
    texts = Texts(key, name, addresses, ("control-1.us-west-2", ["api.lab.internal"]), 7)
    plane.kubectl("delete", "validatingadmissionpolicybinding", "bedplate-requests", "--ignore-not-found")
    two = next(text for text, _ in texts.generate(100) if text.count(b"BEGIN") == 2)
    assert wait_until(lambda: "one BEGIN only" not in create(plane, two, signer, "--dry-run=server").stderr, 30)
    user, groups = USERS[signer]
    inventory = Inventory({name: KnownMachine(frozenset(addresses), "i-0", key.hash)}, REGIONS)

    approved = foreign = 0
    for text, certificate in sign_all(plane, signer, [*texts.odd(), *(text for text, _ in texts.generate(400))]):
        request = CertificateRequest(signer, user.format(name), groups, frozenset({USAGES[signer]}), text, 0.0)
        is_approved = decide(request, inventory).answer is Answer.APPROVE
        is_foreign = bool(certificate) and content(certificate) != (f"system:node:{name}", addresses, key.public)
        assert not (is_approved and (is_foreign or not certificate)), text
        assert not is_foreign or difference(text, signer, certificate)
        approved, foreign = approved + is_approved, foreign + is_foreign

    assert approved > 20
    assert foreign > 5, "the generator makes no text in which the signer finds something else"


def test_an_alarm_tells_what_was_issued_for_something_else(control_plane: ControlPlane) -> None:
    """The approver finds a certificate that it would not have approved like that, and `kube status` shows it."""
    approvers, key = Approvers(control_plane), NodeKey()
    texts = Texts(key, TITAN, ["192.168.40.21"], ("x", ["api.lab.internal"]), 0)
    *_, two = texts.odd()
    name = create(control_plane, two, SERVING).stdout.strip().partition("/")[2]
    control_plane.kubectl("certificate", "approve", name)
    assert wait_until(lambda: "certificate" in requests(control_plane)[name]["status"], 30)
    approvers.approver.start()

    approvers.approver.verify()
    approvers.approver.verify()

    (alarm,) = [line for line in approvers.log if "ALARM" in line]
    assert f"{name} of admin: issued for something else than approved: cannot be read: not the canonical" in alarm
    assert read_alarms(ClusterClient(control_plane.client())) == (alarm.removeprefix("ALARM: "),)
    approvers.approver.stop()
    control_plane.kubectl("delete", "configmap", ALARMS, "--namespace=kube-system")
    control_plane.kubectl("delete", "csr", "--all")
    assert read_alarms(ClusterClient(control_plane.client())) == ()


USERS = {
    CLIENT: ("system:bootstrap:abcdef", frozenset({BOOTSTRAPPERS, WORKERS})),
    SERVING: ("system:node:{}", frozenset({"system:nodes"})),
}


def sign_all(plane: ControlPlane, signer: str, texts: Sequence[bytes]) -> Iterator[tuple[bytes, bytes]]:
    """Yield the texts that the API server accepts, each with the certificate of the real signer, empty if it fails."""
    client, created = plane.client(), dict[str, bytes]()
    for text in texts:
        usages = ["digital signature", USAGES[signer]]
        spec = CertificateSigningRequestSpec(b64encode(text).decode(), signer, usages=usages)
        request = CertificateSigningRequest(metadata=ObjectMeta(generateName="test-"), spec=spec)
        with suppress(ApiError):
            answer = client.create(request)
            created[str(answer.metadata and answer.metadata.name)] = text
            condition = CertificateSigningRequestCondition("True", "Approved")
            status = CertificateSigningRequestStatus(conditions=[condition])
            approval = CertificateSigningRequestApproval(spec=answer.spec, metadata=answer.metadata, status=status)
            client.replace(approval, str(answer.metadata and answer.metadata.name))
    signed: dict[str, str] = {}

    def all_signed() -> bool:
        for item in client.list(CertificateSigningRequest):
            conditions = {condition.type for condition in (item.status and item.status.conditions) or ()}
            certificate = (item.status and item.status.certificate) or ""
            if certificate or "Failed" in conditions:
                signed[str(item.metadata and item.metadata.name)] = certificate
        return created.keys() <= signed.keys()

    assert wait_until(all_signed, 120)
    plane.kubectl("delete", "csr", "--all")
    yield from ((text, b64decode(signed[name])) for name, text in created.items())


def content(certificate: bytes) -> tuple[str, list[str], bytes]:
    """Return the name, the alternative names and the public key in a certificate."""
    parsed = x509.load_pem_x509_certificate(certificate)
    (name,) = parsed.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    names: list[str] = []
    with suppress(x509.ExtensionNotFound):
        values = parsed.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        names = [str(value.value) for value in values]
    public = parsed.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return str(name.value), names, public
