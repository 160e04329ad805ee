"""Add-ons without a cluster: pins, patches, the kubeconfig of a person, faults of the status, digests of images."""

import json
import os
import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import IPv4Network
from pathlib import Path
from subprocess import run as run_program
from time import time
from types import SimpleNamespace
from typing import Any, cast

import pytest
from lightkube.models.core_v1 import NodeSpec, Taint
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import Node

from bedplate.catalog.catalog import load_addons, read_data_file
from bedplate.catalog.software import AddonPins, ManifestPin, read_addons, write_addons
from bedplate.cli import run
from bedplate.errors import InputError, ViolationError
from bedplate.kubernetes.addons import ADDONS, Object, Setting, choose_pins, render_addon
from bedplate.kubernetes.desired import (
    admit_routers,
    people_objects,
    person_kubeconfig,
    policy_objects,
    volume_objects,
)
from bedplate.kubernetes.registry import image_digest
from bedplate.kubernetes.status import MemberState, assess, read_routers
from bedplate.plan.cluster import ClusterPlan, cluster_plan
from bedplate.report.kube import status_document, status_lines
from roles.tokens.role import Tokens
from tests.testlab.fakes.node import Recorder, recorded
from tests.testlab.fleets.variants import lab_plan
from tests.testlab.kubernetes import binaries
from tests.testlab.run import ROOT

TEXT = b"kind: ConfigMap"
SUM = sha256(TEXT).hexdigest()
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl"
NOW = datetime(2026, 11, 23, tzinfo=UTC)


def lab_cluster() -> ClusterPlan:
    """Return the plan of the lab's cluster after `kube init`."""
    cluster = cluster_plan(lab_plan())
    assert cluster
    return replace(cluster, authority="-----BEGIN CERTIFICATE-----")


def rendered(name: str, text: str = "") -> tuple[Object, ...]:
    """Return the objects of an add-on from a text, or from its own manifest."""
    addon = next(addon for addon in ADDONS if addon.name == name)
    texts = [text] if text else []
    return render_addon(addon, AddonPins(name, "1.36.3"), texts, Setting(lab_cluster(), ("p5.48xlarge",)))


def test_pins_are_read_as_they_are_written() -> None:
    """The file of pins is what its own reader and writer make of it."""
    rows = read_data_file("addons").rows

    assert write_addons(read_addons(rows)) == tuple(rows)


@pytest.mark.parametrize(
    ("pin", "text", "message"),
    [
        pytest.param(ManifestPin("https://a", SUM, verified=True), b"kind: Secret", "another checksum", id="changed"),
        pytest.param(ManifestPin("https://a", SUM, verified=False), TEXT, "is not verified", id="unverified"),
    ],
)
def test_an_unexpected_file_is_refused(pin: ManifestPin, text: bytes, message: str) -> None:
    """Nothing is applied whose checksum differs, or was never compared with its source."""
    with pytest.raises(ViolationError, match=message):
        pin.check(text)


def test_pinning_records_what_the_source_has_and_refuses_a_moved_tag() -> None:
    """A matching file becomes verified; an image whose digest changed is an error."""
    addon = AddonPins("a", "1", (ManifestPin("https://a", SUM, verified=False),), {"r/a:1": "sha256:1"})

    assert addon.pinned({"https://a": TEXT}, {}).files[0].verified
    with pytest.raises(ViolationError, match="another digest"):
        addon.pinned({}, {"r/a:1": "sha256:2"})


_VERSIONS = ("1.35.4", "1.36.3", "1.36.9")


def test_kube_proxy_has_the_version_of_the_cluster() -> None:
    """A newer kube-proxy than the API server does not work; the image of a patch without pins is used by its tag."""
    cluster = lab_cluster()

    versions = {name: choose_pins(load_addons(), replace(cluster, version=name))["kube-proxy"] for name in _VERSIONS}
    assert {name: addon.version for name, addon in versions.items()} == {name: name for name in _VERSIONS}
    assert versions["1.36.3"].images
    assert not versions["1.36.9"].images
    with pytest.raises(InputError) as refused:
        choose_pins(load_addons(), replace(cluster, version="1.29"))
    assert "write '1.29.'" in refused.value.fix


def test_flannel_has_the_block_and_the_packets_of_the_plan() -> None:
    """The lab has workers at a site, so packets between nodes have 1,400 bytes at most."""
    (item,) = rendered("flannel", "{kind: ConfigMap, metadata: {name: a}, data: {net-conf.json: '{}'}}")

    network = json.loads(item["data"]["net-conf.json"])
    assert (network["Network"], network["Backend"]["MTU"]) == (str(lab_cluster().pods), 1400)


def test_images_have_their_digest() -> None:
    """A known digest is part of the image's name."""
    image = "registry.k8s.io/kube-proxy:v1.36.3"
    addon = next(addon for addon in ADDONS if addon.name == "kube-proxy")
    objects = render_addon(
        addon, AddonPins("kube-proxy", "1.36.3", (), {image: "sha256:1"}), (), Setting(lab_cluster())
    )

    (daemons,) = (item for item in objects if item["kind"] == "DaemonSet")
    assert daemons["spec"]["template"]["spec"]["containers"][0]["image"] == f"{image}@sha256:1"


@pytest.mark.parametrize(
    ("name", "image"),
    [
        ("kube-network-policies", "registry.k8s.io/networking/kube-network-policies:v0.7.0"),
        ("metrics-server", "gcr.io/k8s-staging-metrics-server/metrics-server:master"),
    ],
)
def test_images_have_the_pinned_tag(name: str, image: str) -> None:
    """Upstream's manifest of a release may name the image of the one before, or of none."""
    pins = choose_pins(load_addons(), lab_cluster())[name]
    pod = {"containers": [{"image": image, "args": []}]}
    document = {"kind": "DaemonSet", "metadata": {"name": name}, "spec": {"template": {"spec": pod}}}
    addon = next(addon for addon in ADDONS if addon.name == name)

    (item,) = render_addon(addon, pins, [json.dumps(document)], Setting(lab_cluster()))

    (container,) = item["spec"]["template"]["spec"]["containers"]
    assert [container["image"].partition("@")[0]] == [*pins.images]
    assert container["image"].endswith(f":v{pins.version}")


def test_the_tests_build_the_pinned_version_of_network_policies() -> None:
    """The program that the tests on nodes run is that of the add-on."""
    text = (Path(binaries.__file__).parent / "flannel" / "policies.mod").read_text()

    version = choose_pins(load_addons(), lab_cluster())["kube-network-policies"].version
    assert re.search(r"sigs.k8s.io/kube-network-policies (\S+)", text)[1] == f"v{version}"  # type: ignore[index]


def test_every_policy_applies_and_refuses_when_it_fails() -> None:
    """Each one has its binding, without which it has no effect. No class of people preempts."""
    objects = policy_objects("1.36")
    policies = [item for item in objects if item["kind"].endswith("AdmissionPolicy")]
    bindings = {
        (item["kind"], item["spec"]["policyName"]) for item in objects if item["kind"].endswith("PolicyBinding")
    }

    assert {item["spec"]["failurePolicy"] for item in policies} == {"Fail"}
    assert {(f"{item['kind']}Binding", item["metadata"]["name"]) for item in policies} <= bindings
    assert [item["preemptionPolicy"] for item in objects if item["kind"] == "PriorityClass"] == ["Never"]


def test_kubernetes_1_35_has_no_mutating_policies() -> None:
    """There the same rules hold, and people write what the newer version adds."""
    kinds = [{item["kind"] for item in policy_objects(version)} for version in ("1.35", "1.36")]

    assert kinds[1] - kinds[0] == {"MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"}


def test_each_person_has_a_namespace_and_stores_at_the_usual_paths() -> None:
    """A home is the person's own folder; other stores have the path that they have on machines."""
    plan = lab_plan()
    kinds = {(item["kind"], item["metadata"]["name"]) for item in people_objects(plan.accounts, lab_cluster().pods)}
    volumes = {
        item["metadata"]["name"]: item["spec"]["local"]["path"]
        for item in volume_objects(plan)
        if item["kind"] == "PersistentVolume"
    }

    assert {("Namespace", "grace"), ("ServiceAccount", "grace"), ("ServiceAccount", "ada")} <= kinds
    assert volumes["grace.home"] == "/home/grace"
    assert volumes["grace.cellar-data"] == "/data"


def test_network_policies_admit_machines_that_forward() -> None:
    """A machine forwards packets of laptops with its own addresses in the pods' block, by the blocks of nodes."""
    listed = {"control-1.us-west-2": "10.112.3.0/24", "control-2.us-west-2": "10.112.4.0/24", "new": None}
    nodes = [
        Node(metadata=ObjectMeta(name=name), spec=NodeSpec(podCIDR=block) if block else None)
        for name, block in listed.items()
    ]
    cluster: Any = SimpleNamespace(objects=lambda _kind: (nodes, "1"))
    objects = people_objects(lab_plan().accounts, lab_cluster().pods)

    routers = read_routers(cluster, {"control-1.us-west-2", "new"})
    admit_routers(objects, routers)

    rules = [item["spec"]["ingress"][0]["from"] for item in objects if item["kind"] == "NetworkPolicy"]
    outside = {"ipBlock": {"cidr": "0.0.0.0/0", "except": ["10.112.0.0/13"]}}
    assert routers == ("10.112.3.0/31",)
    assert rules
    assert all(rule == [{"podSelector": {}}, outside, {"ipBlock": {"cidr": "10.112.3.0/31"}}] for rule in rules)


def test_a_kubeconfig_has_no_secret_and_trusts_recorded_keys_only(tmp_path: Path) -> None:
    """The kubeconfig runs ssh to each member in turn, with the host key of the lock; ssh accepts the options."""
    document = person_kubeconfig(lab_cluster(), "grace", {"control-2.us-west-2": (KEY,)})

    (user,) = document["users"]
    script = user["user"]["exec"]["args"][1]
    assert set(user["user"]) == {"exec"}
    assert "grace@control-2.us-west-2.lab.internal kube-token" in script
    assert "control-1" not in script
    script = script.replace("ssh -T", "ssh -G")
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    done = run_program(["sh", "-c", script], capture_output=True, text=True, check=False, env=environment)
    assert "stricthostkeychecking true" in done.stdout
    assert f"control-2.us-west-2.lab.internal {KEY}" in done.stdout


def _token(folder: Path) -> str:
    """Run the command of a kubeconfig; return what it prints."""
    document = person_kubeconfig(lab_cluster(), "grace", {"control-1.us-west-2": (KEY,)})
    script = document["users"][0]["user"]["exec"]["args"][1]
    environment = {"PATH": f"{folder}:{os.environ['PATH']}", "HOME": str(folder)}
    done = run_program(["sh", "-c", script], capture_output=True, text=True, check=False, env=environment)
    return done.stdout


def test_a_token_is_kept_until_shortly_before_its_end(tmp_path: Path) -> None:
    """A kubeconfig runs ssh once in 50 minutes; a token that others could read, or of the future, is not used."""
    ssh = tmp_path / "ssh"
    ssh.write_text(f'#!/bin/sh\nprintf x >>{tmp_path}/calls\necho "token $(wc -c <{tmp_path}/calls)"\n')
    ssh.chmod(0o755)
    first, again = _token(tmp_path), _token(tmp_path)
    (file,) = (tmp_path / ".cache/bedplate").iterdir()
    changes: dict[str, Callable[[], None]] = {
        "old": lambda: os.utime(file, (time() - 51 * 60,) * 2),
        "readable": lambda: file.chmod(0o644),
        "future": lambda: os.utime(file, (time() + 3600,) * 2),
    }
    after: list[str] = []
    for change in changes.values():
        change()
        after.append(_token(tmp_path))

    assert first == again == "token 1\n"
    assert after == ["token 2\n", "token 3\n", "token 4\n"]
    assert _token(tmp_path) == "token 4\n"
    assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)


def test_no_token_is_kept_when_no_member_answers(tmp_path: Path) -> None:
    """A failed request leaves no file, and its error is not taken for a token later."""
    (tmp_path / "ssh").write_text("#!/bin/sh\necho half\nexit 255\n")
    (tmp_path / "ssh").chmod(0o755)

    assert _token(tmp_path) == ""
    assert [*(tmp_path / ".cache/bedplate").iterdir()] == []


@pytest.mark.parametrize(
    ("cluster", "keys", "fix"),
    [
        pytest.param(replace(lab_cluster(), authority=""), {"control-1.us-west-2": (KEY,)}, "kube init", id="init"),
        pytest.param(lab_cluster(), {}, "node trust control-1.us-west-2", id="host key"),
    ],
)
def test_no_kubeconfig_without_a_cluster(cluster: ClusterPlan, keys: dict[str, tuple[str, ...]], fix: str) -> None:
    """Before the authority and a host key are known, no kubeconfig could be trusted."""
    with pytest.raises(InputError) as refused:
        person_kubeconfig(cluster, "grace", keys)

    assert fix in refused.value.fix


def _node(name: str, version: str = "v1.36.3", block: str | None = "10.80.0.0/24", minutes: int = 60) -> Node:
    """Return a node of a pool that is ready, and `minutes` old."""
    ready = {"type": "Ready", "status": "True"}
    others = ("architecture", "bootID", "kernelVersion", "kubeProxyVersion", "machineID", "operatingSystem", "osImage")
    info = dict.fromkeys((*others, "systemUUID"), "")
    info |= {"kubeletVersion": version, "containerRuntimeVersion": "containerd://2.2.1"}
    created = (NOW - timedelta(minutes=minutes)).strftime("%Y-%m-%dT%H:%M:%SZ")
    meta = {"name": name, "labels": {"bedplate/pool": "train"}, "creationTimestamp": created}
    spec = {"podCIDR": block} if block else {}
    document = {"metadata": meta, "spec": spec, "status": {"conditions": [ready], "nodeInfo": info}}
    return cast("Node", Node.from_dict(document))


def test_a_status_is_text_or_json() -> None:
    """Both have the same values; what does not answer is a null in JSON."""
    member = MemberState("control-1", None)
    status = assess("v1.36.3", lab_cluster(), [member], [_node("a"), _node("b")], [], NOW)

    row = next(line for line in status_lines(status) if line.startswith("train"))
    document: Any = json.loads(json.dumps(status_document(status)))

    assert row.split() == ["train", "2", "2", "0", "0", "v1.36.3", "2.2.1"]
    values = {"all": 2, "ready": 2, "gated": 0, "cordoned": 0, "kubelets": ["v1.36.3"], "containerd": ["2.2.1"]}
    assert document["nodes"] == [{"group": "train", **values}]
    assert document["members"] == [{"name": "control-1", "certificate": None}]


def test_nodes_without_addresses_for_pods_are_a_fault() -> None:
    """A used-up block is named with its size; a node of the last minutes may still get its part."""
    cluster = replace(lab_cluster(), pods=IPv4Network("10.80.0.0/23"))
    nodes = [_node("a"), _node("b"), _node("c", block=None)]

    (used_up,) = assess("v1.36.3", cluster, [], nodes, [], NOW).faults
    (other,) = assess("v1.36.3", cluster, [], nodes[1:], [], NOW).faults

    assert used_up.startswith("no addresses for pods: c: 10.80.0.0/23 is enough for 2 nodes, and there are 3: ")
    assert other == "no addresses for pods: c: `kubectl describe node c` shows why"
    assert not assess("v1.36.3", cluster, [], [*nodes[:2], _node("d", block=None, minutes=5)], [], NOW).faults


def test_the_verdicts_of_failed_gates_are_faults() -> None:
    """Broken hardware, broken software and what the gate cannot tell are told apart; a gate that runs is no fault."""
    nodes = [_node(name) for name in ("a", "b", "c", "d", "e")]
    for node, value in zip(nodes, ("hardware", "software", "unknown", "pending", "software"), strict=True):
        assert node.spec
        node.spec.taints = [Taint(key="bedplate/gate", value=value, effect="NoSchedule")]

    faults = assess("v1.36.3", lab_cluster(), [], nodes, [], NOW).faults

    assert [fault.partition(": ")[2].partition(", no")[0] for fault in faults] == [
        "a: broken hardware: the capacity controller replaces an instance; repair a physical machine",
        "b, e: broken software",
        "c: the gate cannot tell",
    ]


def test_faults_of_a_status() -> None:
    """Versions that differ from the plan, a certificate that ends soon, a kubelet too old, and pods not ready."""
    members = [MemberState("control-1", NOW + timedelta(days=3)), MemberState("control-2", NOW + timedelta(days=300))]
    node = _node("a", "v1.32.1")
    image = SimpleNamespace(image="registry.k8s.io/kube-proxy:v1.36.0@sha256:1")
    daemons: Any = SimpleNamespace(
        metadata=SimpleNamespace(name="kube-proxy", labels={"bedplate/addon": "kube-proxy"}),
        spec=SimpleNamespace(template=SimpleNamespace(spec=SimpleNamespace(containers=[image]))),
        status=SimpleNamespace(numberReady=3, desiredNumberScheduled=4),
    )
    daemons.kind = "DaemonSet"

    assert assess("v1.36.0", lab_cluster(), members, [node], [daemons], NOW).faults == (
        "the API server has version v1.36.0, the plan 1.36.3: run `bedplate kube upgrade`",
        "train: kubelet v1.32.1; planned: kubelet 1.36.3, containerd 2.2.1: run `bedplate kube upgrade`",
        "kube-proxy v1.36.0; planned: 1.36.3: run `bedplate kube addons apply`",
        "control-1: the certificate of the API server ends on 2026-11-26",
        "train: kubelet v1.32.1 does not work with the API server's v1.36.0",
        "kube-proxy: 1 of 4 pods are not ready",
    )


@pytest.fixture
def registry() -> Iterator[str]:
    """Yield the address of a registry that wants an anonymous token first, as public ones do."""

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            is_known = self.headers.get("Authorization") == "Bearer t"
            self.send_response(200 if is_known else 401)
            host = self.headers["Host"]
            challenge = f'Bearer realm="http://{host}/token",service="r",scope="repository:a/b:pull"'
            self.send_header("WWW-Authenticate", challenge)
            self.send_header("Docker-Content-Digest", f"sha256:{'1' * 64}")
            self.end_headers()

        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b'{"token": "t"}' if "scope=repository" in self.path else b"{}")

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_a_digest_is_read_with_an_anonymous_token(registry: str) -> None:
    """The registry's challenge names where to get the token."""
    assert image_digest(f"{registry}/a/b:1", scheme="http") == f"sha256:{'1' * 64}"


def test_people_on_a_member_can_ask_for_tokens() -> None:
    """The socket listens on members; its program knows the names of people in the cluster and the member's server."""
    member = lab_cluster().members[0]
    played = Recorder(recorded("ubuntu-24.04")).play(Tokens(member.address, {20000: "ada", 20007: "jo-k"}))

    program = played.written("/usr/local/sbin/bedplate-token")
    assert "ACCOUNTS = {20000: 'ada', 20007: 'jo-k'}" in program
    assert f'SERVER = "https://{member.address}:6443"' in program
    assert '"token": "{{.status.token}}"' in program
    assert any("bedplate-token.socket" in command for command in played.commands)


def test_a_mirror_without_a_file_is_an_input_error(
    begun: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The message names the file that is missing, and where it comes from."""
    assert run(["kube", "addons", "apply", str(begun), "--mirror", str(tmp_path)]) == 2

    assert "copy https://raw.githubusercontent.com/flannel-io/" in capsys.readouterr().err


# No test runs these add-ons; tests/kubernetes/test_addons.py applies their objects.
NOT_RUN = {
    "node-local-dns": "its program is not built here, and no image can be pulled",
    "metrics-server": "its program is not built here, and no image can be pulled",
    "nvidia-device-plugin": "needs GPUs and NVIDIA's image",
    "efa-device-plugin": "needs EFA interfaces and the image of AWS",
}


def test_every_addon_is_run_or_listed() -> None:
    """A test of tests/kubernetes names each add-on, or `NOT_RUN` has the reason why none runs it."""
    tests = "".join(file.read_text(encoding="utf-8") for file in (ROOT / "tests" / "kubernetes").glob("test_*.py"))
    tested = {addon.name for addon in ADDONS if addon.name in tests}

    assert tested.isdisjoint(NOT_RUN)
    assert tested | set(NOT_RUN) == {addon.name for addon in ADDONS}
