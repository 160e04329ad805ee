"""The real kubeadm accepts every document of the roles, and makes a member of the control plane from them.

Nothing is booted: the files of members are in mounts of their own, and no container runs.
"""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from bedplate.catalog import load_catalog
from bedplate.lock import lock_path
from bedplate.lock.format import lock_text
from bedplate.plan import FleetPlan
from bedplate.plan.cluster import ClusterNode, as_node, cluster_plan, pool_node_kinds
from bedplate.spec.sites import Use
from roles.control.role import member_documents
from roles.kubernetes.role import common_settings, kind_settings, yaml_text
from tests.testlab.machines.defects import Rule, Where, defects_at
from tests.testlab.machines.lab import FAILED
from tests.testlab.machines.member import MAKE, MEMBER, Member, make_authorities
from tests.testlab.rehearsal.programs import EXAMPLES, plan_of
from tests.testlab.run import need_program, need_root

_DEFECTS, _JOINED = defects_at(Where.MEMBER), defects_at(Where.JOINED)
LAB = EXAMPLES / "lab.yaml"
NAME = "control-1.us-west-2"


@pytest.fixture(scope="module", autouse=True)
def programs() -> None:
    """Skip these tests without root or the programs that they run."""
    need_root()
    for name in ("kubeadm", "etcd", "etcdctl"):
        need_program(name)


def _nodes(plan: FleetPlan) -> Iterator[ClusterNode]:
    """Yield every kind of node of a fleet's cluster: members, workers of sites, and machines of pools."""
    names = [member.name for member in plan.control_plane.members] if plan.control_plane else []
    names += [f"{label}.{site.name}" for site in plan.sites for label in site.machines]
    yield from filter(None, (as_node(plan, name) for name in names))
    cluster = cluster_plan(plan)
    for pool in plan.pools:
        if cluster and pool.use is Use.KUBERNETES:
            yield pool_node_kinds(cluster, pool, load_catalog())


def _documents(node: ClusterNode, members: list[ClusterNode]) -> Iterator[str]:
    """Yield the documents of each type of a node, with those of a member: kubeadm judges kubelet's only with them."""
    control = yaml_text(*member_documents(node if node.member else members[0]))
    for kind in node.kinds.values():
        kubelet = yaml_text(common_settings(node)) + yaml_text(kind_settings(kind))
        yield f"{control}kubernetesVersion: v1.36.0\n---\n{kubelet}"


def _validate(folder: Path, text: str) -> subprocess.CompletedProcess[str]:
    file = folder / "kubeadm.yaml"
    file.write_text(text)
    return subprocess.run(
        ["kubeadm", "config", "validate", "--config", file], capture_output=True, text=True, check=False
    )


_CHOSEN = ('"clusterDNS"', 'clientCAFile"')
CLUSTERS = [file.stem for file in sorted(EXAMPLES.glob("*.yaml")) if cluster_plan(plan_of(file))]


@pytest.mark.parametrize("name", CLUSTERS)
def test_kubeadm_accepts_every_document(name: str, tmp_path: Path) -> None:
    """No field is misspelt or out of its range, for any machine of the examples.

    kubeadm recommends its own DNS address and the authority at the path of members: workers have others on purpose.
    """
    nodes = list(_nodes(plan_of(EXAMPLES / f"{name}.yaml")))
    members = [node for node in nodes if node.member]
    texts = {text for node in nodes for text in _documents(node, members)}

    answers = [_validate(tmp_path, text) for text in sorted(texts)]

    assert len(texts) > len(members)
    warnings = [line for answer in answers for line in answer.stderr.splitlines() if not any(map(line.count, _CHOSEN))]
    assert (warnings, sum(answer.returncode for answer in answers)) == ([], 0)


@pytest.mark.parametrize(("right", "wrong"), [("maxPods", "maxPodz"), ("certSANs", "certSans"), ("/13", "/33")])
def test_kubeadm_refuses_a_mistake(right: str, wrong: str, tmp_path: Path) -> None:
    """The documents are judged strictly: otherwise accepting them would mean nothing."""
    node = as_node(plan_of(LAB), NAME)
    assert node
    (text,) = _documents(node, [node])

    assert _validate(tmp_path, text.replace(right, wrong)).returncode != 0


def test_etcd_is_the_one_that_kubeadm_installs() -> None:
    """All tests run the etcd, and restore by the etcdutl, whose image a member of this Kubernetes has."""
    images = _output(
        "kubeadm", "config", "images", "list", "--kubernetes-version", _output("kubeadm", "version", "-o", "short")
    )
    installed = re.search(r"/etcd:v?([0-9.]+)", images)
    assert installed
    for program in ("etcd", "etcdctl", "etcdutl"):
        version = re.search(r"[vV]ersion: ([0-9.]+)", _output(program, "version" if program != "etcd" else "--version"))

        assert version
        assert version[1] == installed[1], program


def _output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the authorities of a cluster."""
    folder = tmp_path_factory.mktemp("members")
    make_authorities(folder / "authorities")
    return folder


def _member(folder: Path, name: str = NAME) -> Member:
    node = as_node(plan_of(LAB), name)
    assert node
    return Member(LAB, node, folder)


@pytest.mark.parametrize("number", [1, 2, 3])
def test_each_member_makes_itself(number: int, folder: Path) -> None:
    """Without another member, kubeadm makes certificates and the static pod of etcd, which knows all members."""
    member = _member(folder, f"control-{number}.us-west-2")
    output = member.run(f"{MAKE}\ncat /etc/kubernetes/manifests/etcd.yaml")

    pod: dict[str, Any] = YAML(typ="safe").load(output)
    command = pod["spec"]["containers"][0]["command"]
    assert f"--name={member.node.name}" in command
    assert f"--initial-cluster={member.node.cluster.initial_cluster}" in command


def test_a_second_run_changes_nothing(folder: Path) -> None:
    """At the next boot, certificates and static pods stay as they are."""
    listing = "find /etc/kubernetes /var/lib/etcd -type f -exec sha256sum {} + | sort"

    output = _member(folder).run(f"{MAKE}\n{listing}\necho ---\n{MAKE}\n{listing}")

    first, second = output.split("---\n")
    assert first == second
    assert "/etc/kubernetes/manifests/kube-apiserver.yaml" in first


def test_a_new_audit_policy_restarts_the_api_server(folder: Path) -> None:
    """Its static pod names the content of the files that it reads at its start; kubelet restarts a changed pod."""
    show = "grep bedplate/settings /etc/kubernetes/manifests/kube-apiserver.yaml"
    change = "sed -i 's/settings: ./settings: x/' /etc/kubernetes/patches/kube-apiserver+merge.yaml"

    first, second = _member(folder).run(f"{MAKE}\n{show}\n{change}\n{MAKE}\n{show}").splitlines()

    assert first != second


def test_a_replaced_machine_has_the_identity_of_its_volume(folder: Path) -> None:
    """With an empty root disk and its old volume, a member makes the same certificates and static pods.

    Kubeconfigs are on the root disk: the pods that read them are named by their new certificates.
    """
    manifests = "cd /etc/kubernetes/manifests; cat etcd.yaml kube-apiserver.yaml; sha256sum /var/lib/etcd/pki/*.crt"
    forget = "rm -r /etc/kubernetes/manifests /etc/kubernetes/*.conf"

    output = _member(folder).run(f"{MAKE}\n{manifests}\necho ======\n{forget}\n{MAKE}\n{manifests}")

    first, second = output.split("======\n")
    assert first == second


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        ("umount /var/lib/etcd", "etcd must not write to the root disk"),
        ("rm /var/lib/etcd/pki/etcd/ca.key", "etcd/ca.crt or its key is missing: run bedplate kube init"),
        ("rm /var/lib/etcd/pki/encryption.yaml", "encryption.yaml is missing: run bedplate kube init"),
        ("true", "etcd has no data on this volume: run bedplate kube init"),
    ],
)
def test_an_incomplete_member_makes_nothing(damage: str, reason: str, folder: Path) -> None:
    """Without volume, an authority, the key of encryption, or data of the cluster there is no static pod."""
    output = _member(folder).run(f"{damage}\n{MEMBER} 2>&1 || ls -A /etc/kubernetes/manifests 2>&1 || true")

    assert reason in output
    assert "cannot access '/etc/kubernetes/manifests'" in output


_ETCD = f"""
pki=/var/lib/etcd/pki/etcd
export ETCDCTL_API=3
put() {{ etcdctl --cacert $pki/ca.crt --cert $pki/server.crt --key $pki/server.key put key value; }}
{MAKE}
etcd --data-dir /var/lib/etcd/data --listen-client-urls https://127.0.0.1:2379 --cert-file $pki/server.crt \\
  --advertise-client-urls https://127.0.0.1:2379 --key-file $pki/server.key --trusted-ca-file $pki/ca.crt \\
  --client-cert-auth >/dev/null 2>&1 &
trap 'kill $!' EXIT
until put >/dev/null 2>&1; do sleep 0.2; done
for number in 1 2 3 4; do /usr/local/lib/bedplate/etcd-snapshot; sleep 1.1; done
cd /var/lib/etcd/snapshots; ls; stat --format=%a .
"$(command -v etcdutl || command -v etcdctl)" snapshot status --write-out=json "$(ls | tail -1)" 2>/dev/null
"""


def test_the_newest_three_snapshots_are_kept(folder: Path) -> None:
    """The program connects to etcd with the member's own certificate; only root reads the snapshots."""
    *snapshots, mode, status = _member(folder).run(_ETCD).splitlines()

    assert len(snapshots) == 3
    assert all(name.endswith(".db") for name in snapshots)
    assert mode == "700"
    assert json.loads(status)["totalKey"] > 0


_DEFRAGMENTED = (
    _ETCD.partition("for number")[0]
    + r"""
client() { etcdctl --cacert $pki/ca.crt --cert $pki/server.crt --key $pki/server.key "$@"; }
value() { client endpoint status --write-out=json | sed "s/.*\"$1\":\([0-9]*\).*/\1/"; }
snapshot() { /usr/local/lib/bedplate/etcd-snapshot 2>/dev/null; value dbSize; }
fill() {
  for number in $(seq 1 120); do head -c 900000 /dev/urandom | base64 -w0 | client put "big/$number" >/dev/null; done
  client del --prefix big/ >/dev/null
  client compact "$(value revision)" >/dev/null
  # etcd counts pages of deleted objects with its next commits.
  until [[ $(value dbSizeInUse) -lt 1000000 ]]; do client put tick tock >/dev/null; sleep 0.5; done
}
fill
value dbSize
snapshot
fill
snapshot
rm /var/lib/etcd/defragmented
snapshot
"""
)


def test_etcd_gives_back_the_space_of_deleted_objects(folder: Path) -> None:
    """After a snapshot, when more than half of its file is free, and once a day at most."""
    full, first, same_day, next_day = map(int, _member(folder).run(_DEFRAGMENTED).split())

    assert full > 100 << 20
    assert first < 1 << 20
    assert same_day > 100 << 20
    assert next_day < 1 << 20


def _worker(folder: Path) -> Member:
    """Return a worker of a site, in a fleet whose lock has the authority."""
    fleet = folder / LAB.name
    shutil.copy(LAB, folder)
    record = replace(plan_of(LAB).recorded(), authority=(folder / "authorities/ca.crt").read_text())
    lock_path(fleet).write_text(lock_text("lab", record))
    node = as_node(plan_of(fleet), "titan-01.cellar")
    assert node
    return Member(fleet, node, folder)


@pytest.fixture(scope="module")
def outcomes(folder: Path) -> dict[Rule, str]:
    """Return the outcome of each rule of the cluster with its defect."""
    return _member(folder).check_defects(_DEFECTS) | _worker(folder).check_defects(_JOINED)


@pytest.mark.parametrize("rule", [*_DEFECTS, *_JOINED], ids="-".join)
def test_rule_detects_its_defect(rule: Rule, outcomes: dict[Rule, str]) -> None:
    """The rule passes on the machine, and fails with its defect."""
    assert outcomes[rule] == FAILED
