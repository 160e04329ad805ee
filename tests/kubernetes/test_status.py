"""`kube status` on a real API server, also of 1,000 nodes, and the token of a person from a member's socket."""

import base64
import json
import os
import socket
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path
from time import perf_counter
from urllib.parse import urlsplit

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding
from lightkube.models.certificates_v1 import CertificateSigningRequestSpec
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.certificates_v1 import CertificateSigningRequest
from lightkube.resources.core_v1 import Namespace, Node, ServiceAccount

from bedplate.kubernetes.client import ClusterClient
from bedplate.kubernetes.status import read_status
from bedplate.plan.cluster import ClusterPlan, cluster_plan
from bedplate.plan.fleet import ControlPlaneMember
from roles.hardened.logins import TOKEN_PROGRAM
from roles.tokens.role import PROGRAM, Tokens
from tests.testlab.fleets.variants import lab_plan
from tests.testlab.kubernetes.control_plane import ControlPlane, wait_until
from tests.testlab.run import clock_pace, need_root
from vpn.certificates import new_key

LABELS = {"bedplate/pool": "train"}


def _here(plane: ControlPlane) -> tuple[ClusterPlan, int]:
    """Return a cluster whose only member is the API server of the tests, and its port."""
    cluster = cluster_plan(lab_plan())
    assert cluster
    member = ControlPlaneMember("control-1.us-west-2", "us-west-2a", IPv4Address(plane.address))
    return replace(cluster, members=(member,)), urlsplit(plane.server).port or 0


def test_status_of_1000_nodes_takes_2_s(control_plane: ControlPlane) -> None:
    """Members with their certificates and nodes by pool, in less than 2 s on an idle machine."""
    names = control_plane.add_nodes(1000, {"nvidia.com/gpu": "8"}, LABELS, prefix="train")
    cluster, port = _here(control_plane)
    client = ClusterClient(control_plane.client())

    def ready() -> int:
        (group,) = (group for group in read_status(client, cluster, datetime.now(UTC), port).nodes if group.all > 900)
        return group.ready

    assert wait_until(lambda: ready() == len(names), 300)
    begun = perf_counter()
    status = read_status(client, cluster, datetime.now(UTC), port)
    seconds = perf_counter() - begun

    assert seconds < 2 * clock_pace()
    (member,) = status.members
    assert member.certificate
    assert not [fault for fault in status.faults if member.name in fault]
    control_plane.kubectl("delete", "--raw", "/api/v1/nodes?labelSelector=bedplate%2Fpool%3Dtrain")


def test_status_names_what_is_wrong(control_plane: ControlPlane) -> None:
    """A kubelet newer than the API server, and a member that does not answer, are faults."""
    cluster, port = _here(control_plane)
    (member,) = cluster.members
    lost = replace(cluster, members=(member, replace(member, name="control-2", address=IPv4Address("127.0.0.9"))))
    client = control_plane.client()
    (name,) = control_plane.add_nodes(1, {}, {"bedplate/site": "attic"}, prefix="new")
    client.patch(Node.Status, name, {"status": {"nodeInfo": {"kubeletVersion": "v1.99.0"}}})

    faults = read_status(ClusterClient(client), lost, datetime.now(UTC), port).faults

    client.delete(Node, name)
    assert "control-2: the API server does not answer" in faults
    assert any(fault.startswith("attic: kubelet v1.99.0 does not work") for fault in faults), faults


def test_status_shows_waiting_requests_leaders_and_lost_nodes(control_plane: ControlPlane) -> None:
    """What waits for ten minutes is a fault with its fix; without a leader nobody approves and nobody scales."""
    cluster, port = _here(control_plane)
    client = control_plane.client()
    # Without a kubelet, real or of kwok.
    name = "lost"
    client.create(Node(metadata=ObjectMeta(name=name, labels={"bedplate/site": "attic"})))
    key = new_key()
    text = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([])).sign(key, SHA256())
    pem = base64.b64encode(text.public_bytes(Encoding.PEM)).decode()
    spec = CertificateSigningRequestSpec(pem, "example.com/nobody", usages=["client auth"])
    client.create(CertificateSigningRequest(metadata=ObjectMeta(name="waiting"), spec=spec))

    status = read_status(ClusterClient(client), cluster, datetime.now(UTC) + timedelta(hours=1), port)

    client.delete(CertificateSigningRequest, "waiting")
    client.delete(Node, name)
    assert any(row.startswith("waiting of ") for row in status.waiting)
    assert status.leaders.keys() == {"approver", "capacity"}
    faults = "\n".join(status.faults)
    assert "no control plane member acts as approver: `systemctl status bedplate-approver` on each member" in faults
    assert "waits: `journalctl -u bedplate-approver` on a member has the reason" in faults
    assert f"attic: not ready: {name}: `bedplate node logs {name}` shows why" in faults


# A user id and its name in the cluster.
PERSON, _UID = "bedplate-test", 29999


@pytest.fixture
def token_socket(control_plane: ControlPlane, tmp_path: Path) -> Iterator[Path]:
    """Yield the socket of a member: each connection starts the role's program, as systemd does."""
    need_root()
    files = {file.path: file.text for file in Tokens(IPv4Address("192.0.2.1"), {_UID: PERSON}).files()}
    program = tmp_path / "bedplate-token"
    text = files[PROGRAM].replace("https://192.0.2.1:6443", control_plane.server)
    program.write_text(text.replace("/etc/kubernetes/super-admin.conf", str(control_plane.kubeconfig())))
    path = tmp_path / "socket"
    (tmp_path / "kube-token").write_text(files[TOKEN_PROGRAM].replace("/run/bedplate-token", str(path)))
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(path))
    for name in (tmp_path, *tmp_path.parents[:3]):
        name.chmod(0o755)
    path.chmod(0o666)
    server.listen()

    def serve() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            with connection:
                subprocess.run(
                    ["/usr/bin/python3", str(program)],
                    stdin=connection.fileno(),
                    stdout=connection.fileno(),
                    check=False,
                    env={"PATH": f"{control_plane.programs}:{os.environ['PATH']}"},
                )

    threading.Thread(target=serve, daemon=True).start()
    yield path
    server.shutdown(socket.SHUT_RDWR)
    server.close()


def _ask(path: Path, uid: int) -> subprocess.CompletedProcess[str]:
    command = ("setpriv", f"--reuid={uid}", "--clear-groups", "/usr/bin/python3", str(path.with_name("kube-token")))
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_people_get_their_own_token(control_plane: ControlPlane, token_socket: Path) -> None:
    """The user id that connects gets the token of its name in the plan; others, and root, get none."""
    client = control_plane.client()
    client.apply(Namespace(metadata=ObjectMeta(name="people")), field_manager="test")
    client.apply(ServiceAccount(metadata=ObjectMeta(name=PERSON, namespace="people")), field_manager="test")

    answer = json.loads(_ask(token_socket, _UID).stdout)
    claims = json.loads(base64.urlsafe_b64decode(answer["status"]["token"].split(".")[1] + "=="))
    stranger = _ask(token_socket, 1000)

    assert answer["kind"] == "ExecCredential"
    assert claims["sub"] == f"system:serviceaccount:people:{PERSON}"
    assert claims["exp"] - claims["iat"] == 3600
    assert (stranger.returncode, stranger.stdout) == (1, "")
    client.delete(ServiceAccount, PERSON, namespace="people")
