"""Machines join a real API server by the agent's path, and the approver answers. AWS is a table of the test."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from bedplate.cluster.approval import ABSENCE, KnownMachine
from bedplate.plan.cluster import BOOTSTRAPPERS, machine_group
from bedplate.worker import join as agent
from bedplate.worker.machine import KUBECONFIG, AgentError
from tests.testlab.kubernetes.control_plane import ControlPlane, wait_until
from tests.testlab.kubernetes.joining import Approvers, JoiningMachine
from tests.testlab.kubernetes.requests import NodeKey

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
    """It becomes the node of its own name; a second run changes nothing; no file has the token but the test's."""
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
        with pytest.raises(AgentError) as refused:
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

    with pytest.raises(AgentError, match=r"the token is not for titan-02\.cellar"):
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
        with pytest.raises(AgentError, match="refused the token: it is wrong or has expired"):
            worker.join(invalid)


def test_a_server_of_another_authority_gets_no_token(approvers: Approvers, tmp_path: Path) -> None:
    """A machine trusts the authority in its node document only. A clock that is wrong by a year says so."""
    worker = machine(approvers, tmp_path, "train-0000000d.us-west-2", instance="i-00000000d")
    authority = tmp_path / "etc/kubernetes/pki/ca.crt"
    right = authority.read_bytes()
    make = "openssl req -x509 -nodes -newkey ec -pkeyopt ec_paramgen_curve:P-256 -subj /CN=other"
    files = ("-keyout", str(tmp_path / "other.key"), "-out", str(authority))
    subprocess.run((*make.split(), *files), check=True, capture_output=True)

    with pytest.raises(AgentError, match="no valid certificate of the cluster's authority"):
        worker.join(approvers.approver.make_token())
    authority.write_bytes(right)
    code = f"""
from pathlib import Path
from bedplate.worker.join import Api
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
