"""What a researcher, a thief of a worker's token and a worker try against others, on a real API server."""

import base64
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from bedplate.kubernetes.apply import apply_objects, close_namespace
from bedplate.kubernetes.approval import KnownMachine, difference
from bedplate.kubernetes.approver import Approver
from bedplate.kubernetes.client import ClusterClient
from bedplate.kubernetes.desired import people_objects, policy_objects
from bedplate.plan.cluster import cluster_plan
from roles.base import file_text
from tests.testlab.fleets.variants import lab_plan
from tests.testlab.kubernetes.control_plane import ControlPlane, wait_until
from tests.testlab.kubernetes.joining import Approvers
from tests.testlab.kubernetes.requests import NodeKey, Texts

Document = dict[str, Any]
Kubectl = Callable[..., str]
_WORKER = "train-0000000f.us-west-2"
_CLIENT, _SERVING = "kubernetes.io/kube-apiserver-client-kubelet", "kubernetes.io/kubelet-serving"
_CORDONED = {"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}


@pytest.fixture(scope="module")
def plane(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    """Yield a control plane with the rights of the approver and the objects of people."""
    plan = lab_plan()
    cluster = cluster_plan(plan)
    assert cluster
    control_plane.kubectl("apply", "--server-side", "-f", "-", text=file_text("approver/rights.yaml"))
    people = people_objects(plan.accounts, cluster.pods)
    client = ClusterClient(control_plane.client())
    apply_objects(client, (*policy_objects(cluster.version), *people))
    for name in ("ada", "grace"):
        control_plane.wait_for_namespace(name)
    # The API server learns of new policies by a watch, and the quota is counted by a controller.
    dry = ("create", "-n", "grace", "--dry-run=server", "-f", "-")
    assert wait_until(lambda: control_plane.try_kubectl(*dry, text=_pod(nodeName="x")).returncode)
    assert wait_until(lambda: control_plane.try_kubectl(*dry, text=_pod()).returncode == 0)
    # A node without kubelet: what is deleted on it stays.
    control_plane.kubectl("create", "-f", "-", text=json.dumps(_object("Node", name=_WORKER)))
    yield control_plane
    control_plane.kubectl("delete", "pods", "--all", "-n", "grace", "--force")
    control_plane.kubectl("delete", "node", _WORKER)
    control_plane.kubectl("delete", "csr", "--all")
    apply_objects(client, ())


@pytest.fixture(scope="module")
def grace(plane: ControlPlane) -> Kubectl:
    """Return kubectl of a researcher in her namespace."""
    token = plane.kubectl("create", "token", "grace", "-n", "people").strip()
    return lambda *words, text="": plane.as_person(token, *words, "-n", "grace", text=text)[1]


@pytest.fixture(scope="module")
def thief(plane: ControlPlane) -> Kubectl:
    """Return kubectl with a worker's bootstrap token."""
    token = Approver(ClusterClient(plane.client()), print).make_token()
    return lambda *words, text="": plane.as_person(token, *words, text=text)[1]


@pytest.fixture(scope="module")
def worker(plane: ControlPlane) -> Kubectl:
    """Return kubectl with the certificate of a worker."""
    user = f"system:node:{_WORKER}"
    plane.kubeconfig(user, ("system:nodes",))

    def run(*words: str, text: str = "") -> str:
        done = plane.try_kubectl(*words, user=user, text=text)
        return done.stderr + done.stdout

    return run


def _object(kind: str, version: str = "v1", *, name: str = "", **fields: Any) -> Document:  # noqa: ANN401
    metadata = {"name": name} if name else {"generateName": "x-"}
    return {"apiVersion": version, "kind": kind, "metadata": metadata | fields.pop("metadata", {}), **fields}


def _pod(container: Document | None = None, name: str = "", **spec: Any) -> str:  # noqa: ANN401
    main = {"name": "main", "image": "none", **(container or {})}
    return json.dumps(_object("Pod", name=name, spec={"containers": [main], **spec}))


def _tolerating(count: int) -> list[Document]:
    return [{"key": f"lab.example/{number}", "operator": "Exists"} for number in range(count)]


def _affinity(kind: str) -> Document:
    term = {"labelSelector": {}, "topologyKey": "kubernetes.io/hostname", "namespaceSelector": {}}
    rule = {"weight": 1, "podAffinityTerm": term}
    return {kind: {"preferredDuringSchedulingIgnoredDuringExecution": [rule]}}


def _probe(**target: object) -> Document:
    return {"livenessProbe": target}


_HOST = {"host": "169.254.169.254", "port": 80}
_PODS: dict[str, tuple[str, str]] = {
    "cordoned machine": (_pod(tolerations=[_CORDONED]), "takes no new pods"),
    "thousands of tolerations": (_pod(tolerations=_tolerating(4000)), "at most 64 tolerations"),
    "weight against others": (_pod(affinity=_affinity("podAntiAffinity")), "exceeded quota: affinity-to-others"),
    "weight for others": (_pod(affinity=_affinity("podAffinity")), "exceeded quota: affinity-to-others"),
    "HTTP probe by kubelet": (_pod(_probe(httpGet=_HOST)), "baseline"),
    "TCP probe by kubelet": (_pod(_probe(tcpSocket=_HOST)), "baseline"),
    "hook of kubelet": (_pod({"lifecycle": {"postStart": {"httpGet": _HOST}}}), "baseline"),
    "overhead": (_pod(overhead={"cpu": "100"}), "Overhead"),
    "administrator of a user namespace": (
        _pod({"securityContext": {"capabilities": {"add": ["SYS_ADMIN"]}}}, hostUsers=False),
        "baseline",
    ),
    "no seccomp": (_pod(securityContext={"seccompProfile": {"type": "Unconfined"}}), "baseline"),
    "no AppArmor": (_pod(securityContext={"appArmorProfile": {"type": "Unconfined"}}), "baseline"),
    "sysctl of the machine": (_pod(securityContext={"sysctls": [{"name": "kernel.msgmax", "value": "1"}]}), "baseline"),
    "address of the API": (
        json.dumps(_object("Service", spec={"ports": [{"port": 443}], "clusterIP": "10.96.0.1"})),
        "already allocated",
    ),
}


@pytest.mark.parametrize(("text", "message"), _PODS.values(), ids=_PODS)
def test_objects_against_others_are_refused(grace: Kubectl, text: str, message: str) -> None:
    """A researcher cannot use kubelet, a cordoned machine, or the time of the API server."""
    assert message in grace("create", "-f", "-", text=text)


def test_daemon_sets_of_people_run_on_machines_as_others(plane: ControlPlane, grace: Kubectl) -> None:
    """Kubernetes itself lets the pods of a DaemonSet tolerate a cordon; 64 tolerations are accepted."""
    labels = {"app": "d"}
    spec = {"containers": [{"name": "c", "image": "none"}], "tolerations": _tolerating(50)}
    template = {"metadata": {"labels": labels}, "spec": spec}
    daemons = _object(
        "DaemonSet", "apps/v1", name="d", spec={"selector": {"matchLabels": labels}, "template": template}
    )
    grace("create", "-f", "-", text=json.dumps(daemons))

    assert wait_until(lambda: plane.kubectl("get", "pods", "-l=app=d", "-n", "grace", "-o", "name"), 30)
    assert "created" in grace("create", "-f", "-", text=_pod(tolerations=_tolerating(62)))
    plane.kubectl("delete", "daemonset", "d", "-n", "grace")


def test_tolerations_are_not_added_to_a_pod(grace: Kubectl) -> None:
    """Neither that of a cordon nor thousands are possible later, and other changes are."""
    grace("create", "-f", "-", text=_pod(name="changed", schedulingGates=[{"name": "lab.example/wait"}]))
    kept = json.loads(grace("get", "pod", "changed", "-o", "json"))["spec"]["tolerations"]

    def tolerate(*added: Document) -> str:
        return grace("patch", "pod", "changed", "-p", json.dumps({"spec": {"tolerations": [*kept, *added]}}))

    assert "takes no new pods" in tolerate(_CORDONED)
    assert "at most 64" in tolerate(*_tolerating(1000))
    assert "patched" in tolerate(*_tolerating(2))
    assert "may not add mirror pod" in grace("annotate", "pod", "changed", "kubernetes.io/config.mirror=x")


def test_no_pod_outlives_a_closed_namespace_by_its_grace(plane: ControlPlane) -> None:
    """Also one that asks for 30 years to end, or that its person has deleted with such a time."""
    client = ClusterClient(plane.client())
    plane.kubectl("create", "namespace", "left")
    plane.kubectl("create", "quota", "default", "-n", "left", "--hard=pods=500")
    plane.wait_for_namespace("left")
    for name in ("long", "ending"):
        pod = _pod(name=name, nodeName=_WORKER, terminationGracePeriodSeconds=10**9)
        plane.kubectl("create", "-n", "left", "-f", "-", text=pod)
    plane.kubectl("delete", "pod", "ending", "-n", "left", "--wait=false")

    close_namespace(client, "left")

    times = plane.kubectl("get", "pods", "-n", "left", "-o", "jsonpath={.items[*].metadata.deletionGracePeriodSeconds}")
    assert [int(time) <= 60 for time in times.split()] == [True, True]
    plane.kubectl("delete", "pods", "--all", "-n", "left", "--force")
    plane.kubectl("delete", "namespace", "left", "--wait=false")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("auth whoami --as=system:serviceaccount:grace:default --as-group=system:masters", "permission"),
        ("auth whoami --as=system:serviceaccount:grace:default --as-uid=1", "permission"),
        ("auth whoami --as=system:node:x", "permission"),
        ("patch quota default --subresource=status -p {}", "cannot patch"),
        ("get --raw /api/v1/nodes/x/proxy/pods", "nodes/proxy"),
        ("get --raw /metrics", "cannot get path"),
        ("get --raw /debug/pprof/", "cannot get path"),
        ("get --raw /api/v1/secrets?watch=1", "cannot watch"),
        ("create --raw /api/v1/namespaces/ada/pods/x/eviction -f -", "pods/eviction"),
        ("get --raw /api/v1/namespaces/ada/services/x/proxy/", "services/proxy"),
        ("replace --raw /api/v1/namespaces/grace/finalize -f -", "namespaces/finalize"),
        ("get persistentvolumes", "cannot list"),
    ],
)
def test_requests_to_others_are_refused(grace: Kubectl, words: str, message: str) -> None:
    """No other identity, no statistics of the API server, no objects of others by subresources."""
    assert message in grace(*words.split(), text="{}")


def _large() -> bytes:
    """Return a request of 200 KB for another signer."""
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "x")])
    extension = x509.UnrecognizedExtension(x509.ObjectIdentifier("1.2.3.4"), b"x" * 200_000)
    builder = x509.CertificateSigningRequestBuilder(name).add_extension(extension, critical=False)
    return builder.sign(NodeKey().key, SHA256()).public_bytes(Encoding.PEM)


def _request(pem: bytes, signer: str = _CLIENT, **metadata: object) -> str:
    usages = ["digital signature", "server auth" if signer == _SERVING else "client auth"]
    spec = {"request": base64.b64encode(pem).decode(), "signerName": signer, "usages": usages}
    return json.dumps(_object("CertificateSigningRequest", "certificates.k8s.io/v1", metadata=metadata, spec=spec))


_OTHER = "example.org/signer"
_NODE = NodeKey().request(_WORKER)


@pytest.mark.parametrize("who", ["thief", "worker"])
@pytest.mark.parametrize(
    ("text", "message"),
    [
        (_request(_large(), _OTHER), "requests certificates of"),
        (_request(_NODE, _OTHER), "requests certificates of"),
        (_request(_NODE, annotations={"a": "x" * 200_000}), "no labels, annotations"),
        (_request(_NODE, finalizers=["lab.example/x"]), "no labels, annotations"),
        (
            _request(
                NodeKey().request("admin", group="system:masters", user=""), "kubernetes.io/kube-apiserver-client"
            ),
            "",
        ),
    ],
    ids=["large", "other signer", "annotations", "finalizer", "administrator"],
)
def test_machines_store_small_requests_of_nodes_only(
    request: pytest.FixtureRequest, who: str, text: str, message: str
) -> None:
    """Neither a stolen token nor a worker fills etcd by requests that nobody answers."""
    output = request.getfixturevalue(who)("create", "-f", "-", text=text)

    assert message in output
    assert "created" not in output


def test_the_request_of_a_machine_is_accepted(thief: Kubectl, worker: Kubectl) -> None:
    """Joining and renewal are the valid counterparts."""
    for kubectl in (thief, worker):
        assert "created" in kubectl("create", "-f", "-", text=_request(_NODE))


def _answer(plane: ControlPlane, kubectl: Kubectl, pem: bytes, signer: str) -> tuple[str, str]:
    """Return what the approver says of a request, and the certificate that is issued."""
    created = kubectl("create", "-f", "-", "-o", "name", text=_request(pem, signer))
    assert created.startswith("certificatesigningrequest"), created

    def field(path: str) -> str:
        return plane.kubectl("get", created.strip(), "-o", f"jsonpath={{.status.{path}}}")

    assert wait_until(lambda: "Denied" in field("conditions[*].type") or field("certificate"), 60)
    return field("conditions[0].message"), field("certificate")


_ADDRESS, _MEMBER, _API = "10.64.1.5", "control-1.us-west-2", "api.lab.internal"


def test_a_researcher_cannot_take_the_packets_of_others(
    plane: ControlPlane, grace: Kubectl, thief: Kubectl, worker: Kubectl
) -> None:
    """The way from an account over a worker to the API's traffic ends in a refusal at each step.

    It needs a certificate with the API's name, by a text in which approver and signer read different requests, and a
    Service with the API's address. Ordinary requests and Services of the same people are accepted.
    """
    key, approvers = NodeKey(), Approvers(plane)
    approvers.machines[_WORKER] = KnownMachine(frozenset({_ADDRESS}), "i-0000000f", key.hash)
    approvers.machines[_MEMBER] = KnownMachine(frozenset({"10.64.32.16"}))
    plain, own = key.request(_WORKER), key.request(_WORKER, names=[_ADDRESS])
    member, foreign = NodeKey().request(_MEMBER), key.request(_WORKER, names=[_ADDRESS, _API])
    *_, two_lists = Texts(key, _WORKER, [_ADDRESS], (_MEMBER, [_API]), 0).odd()

    assert "cannot create" in grace("create", "-f", "-", text=_request(plain))
    assert "cannot list" in grace("get", "--raw", "/api/v1/namespaces/kube-system/secrets")
    for kubectl, first, second, signer in ((thief, plain, member, _CLIENT), (worker, own, foreign, _SERVING)):
        assert "one BEGIN only" in kubectl("create", "-f", "-", text=_request(first[:-1] + b" .\n" + second, signer))
    with approvers.running("control-1"):
        for kubectl, pem, signer, reason in (
            (thief, member, _CLIENT, f"the token is not for {_MEMBER}"),
            (worker, foreign, _SERVING, f"{_API}: not of {_WORKER}"),
            (worker, two_lists, _SERVING, "not the canonical text"),
        ):
            said, certificate = _answer(plane, kubectl, pem, signer)
            assert reason in said
            assert not certificate
        for kubectl, pem, signer in ((thief, plain, _CLIENT), (worker, own, _SERVING)):
            said, certificate = _answer(plane, kubectl, pem, signer)
            assert not difference(pem, signer, base64.b64decode(certificate)), said
    assert not [line for line in approvers.log if "ALARM" in line]

    service = _object("Service", name="own", spec={"ports": [{"port": 6443}]})
    assert "created" in grace("create", "-f", "-", text=json.dumps(service))
    assert grace("get", "service", "own", "-o", "jsonpath={.spec.clusterIP}").startswith("10.")
    for address in ("10.64.32.16", "192.168.40.5", "10.64.0.2"):
        spec = {"externalIPs": [address]}
        taking = _object("Service", spec={**service["spec"], **spec})
        assert "external IPs is denied" in grace("create", "-f", "-", text=json.dumps(taking))
        assert "external IPs is denied" in grace("patch", "service", "own", "-p", json.dumps({"spec": spec}))
    grace("delete", "service", "own")


def _mirror(uid: str = "1", **spec: object) -> Document:
    owner = {"apiVersion": "v1", "kind": "Node", "name": _WORKER, "uid": uid, "controller": True}
    metadata = {"annotations": {"kubernetes.io/config.mirror": "x"}, "ownerReferences": [owner]}
    spec = {"containers": [{"name": "c", "image": "none"}], "nodeName": _WORKER, **spec}
    return _object("Pod", metadata=metadata, spec=spec)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("get secrets -A", "cannot list"),
        ("get pods -A", "cannot list"),
        ("get secret x -n grace", "no relationship"),
        ("create token default -n grace --audience=sts.amazonaws.com", "no relationship"),
        ("create token ada -n people", "no relationship"),
        ("label node fake-0 a=b", "only its own"),
        (f"taint node {_WORKER} a=b:NoSchedule", "not allowed to modify taints"),
        (f"label node {_WORKER} node-role.kubernetes.io/control-plane=", "not allowed to modify labels"),
        (f"delete node {_WORKER}", "cannot delete"),
    ],
)
def test_a_worker_reaches_its_own_node_only(worker: Kubectl, words: str, message: str) -> None:
    """Its certificate reads and changes nothing of others."""
    assert message in worker(*words.split())


def test_a_worker_cannot_put_pods_into_namespaces_of_people(plane: ControlPlane, worker: Kubectl) -> None:
    """A mirror pod with the labels of a Service would get the packets of a person."""
    uid = plane.kubectl("get", "node", _WORKER, "-o", "jsonpath={.metadata.uid}")

    assert "only the scheduler" in worker("create", "-n", "ada", "-f", "-", text=json.dumps(_mirror(uid)))


def test_revisions_of_people_are_counted(plane: ControlPlane) -> None:
    """A controller stores one for each change of a template, and a person decides how many are kept."""
    quota = json.loads(plane.kubectl("get", "quota", "default", "-n", "grace", "-o", "json"))

    assert "count/controllerrevisions.apps" in quota["spec"]["hard"]
