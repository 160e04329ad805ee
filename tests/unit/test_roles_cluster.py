"""The roles of the cluster: containerd, kubelet with its settings, and members of the control plane."""

import os
import re
import subprocess
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from ruamel.yaml import YAML

from bedplate.catalog import load_catalog
from bedplate.compliance.settings import parse_sysctl_files
from bedplate.load import load_fleet
from bedplate.plan import plan_fleet
from bedplate.plan.capacity import read_capacity_document
from bedplate.plan.cluster import ClusterNode, as_node, cluster_plan, pool_node_kinds
from bedplate.plan.node_document import node_document, read_node_document
from bedplate.plan.nodes import NodePlan
from roles.base import file_text
from roles.baseline.role import Baseline
from roles.capacity.role import PLAN, Capacity
from roles.catalog import names_of, roles_of
from roles.containers.role import CONFIG, MIRRORS, Containers, MirroredRegistries
from roles.control.role import AUTHENTICATION_CONFIGURATION, Control, member_documents
from roles.kubernetes.role import CLUSTER_CA, FOLDER, PACKAGES, PROVIDERS, Kubernetes, kubelet_files
from roles.nvidia.role import TOOLKIT
from roles.system import HeldPackages, Joined, UnitStates
from tests.testlab.fakes.aws import metadata_service
from tests.testlab.fakes.node import Recorder, recorded
from tests.testlab.fleets.variants import lab_node, lab_plan
from tests.testlab.kubernetes.binaries import CONTAINERD, HERE
from tests.testlab.rehearsal.programs import EXAMPLES, plan_of

MEMBERS = tuple(f"control-{number}.us-west-2" for number in (1, 2, 3))
TITAN = "titan-01.cellar"
ROLES = {"containers", "kubernetes", "control"}
UBUNTU = recorded("ubuntu-24.04").but({HeldPackages.name: None, MirroredRegistries.name: None, Joined.name: None})
read_yaml = YAML(typ="safe").load

DOCKER = load_catalog().keys["docker"]


def joined(name: str) -> ClusterNode:
    """Return a machine of the lab as a node of the cluster."""
    node = as_node(lab_plan(), name)
    assert node
    return node


def worker() -> NodePlan:
    """Return a site's machine after `kube init`."""
    return replace(lab_node(TITAN), cluster=joined(TITAN))


def test_members_and_workers_have_their_roles() -> None:
    """A worker has no part of the control plane, a workbench none of the cluster; the packet filter remains last."""
    assert set(names_of(lab_node(MEMBERS[0]))) >= ROLES
    assert ROLES & set(names_of(worker())) == {"containers", "kubernetes"}
    assert ROLES.isdisjoint(names_of(lab_node(TITAN))), "before `kube init`"
    assert ROLES.isdisjoint(names_of(lab_node("titan-03.cellar")))
    assert roles_of(worker())[-1].name == "hardened"


def test_roles_of_a_worker_agree_on_sysctls() -> None:
    """No sysctl has different values in the files of two roles: the last file wins, and the other role undoes it."""
    node = worker()
    entries = Recorder(UBUNTU).play(Baseline(node), Kubernetes(joined(TITAN)), stages=["configure"]).disk.entries
    files = sorted(path for path in entries if path.startswith("/etc/sysctl.d/") and path.endswith(".conf"))

    values: dict[str, set[str]] = {}
    for path in files:
        for name, value in parse_sysctl_files(entries[path].content.splitlines()).items():
            values.setdefault(name, set()).add(value)

    assert len(files) == 2
    assert {name: given for name, given in values.items() if len(given) > 1} == {}


def test_a_bundle_and_an_apply_write_the_same_files() -> None:
    """The files of kubelet are the same from a plan and from its document, whose keys are sorted: nothing restarts."""
    node = worker()
    read = read_node_document(node_document(node))
    assert node.cluster
    assert read.cluster

    assert list(kubelet_files(read.cluster)) == list(kubelet_files(node.cluster))


def test_workers_trust_the_recorded_authority() -> None:
    """Members have it on their volume; without a record no file is written."""
    cluster = replace(joined(TITAN).cluster, authority="certificate\n")

    texts = {file.path: file.text for file in kubelet_files(replace(joined(TITAN), cluster=cluster))}

    assert texts[CLUSTER_CA] == "certificate\n"
    assert CLUSTER_CA not in {file.path for file in kubelet_files(joined(TITAN))}
    assert CLUSTER_CA not in {file.path for file in kubelet_files(replace(joined(MEMBERS[0]), cluster=cluster))}


def test_kubernetes_comes_from_the_repository_of_its_minor_version() -> None:
    """Only packages of the cluster's version come from there, and apt holds them."""
    played = Recorder(UBUNTU).play(Kubernetes(joined(TITAN)))

    assert "https://pkgs.k8s.io/core:/stable:/v1.36/deb/" in played.written(
        "/etc/apt/sources.list.d/kubernetes.sources"
    )
    assert "Pin: version 1.36.3-*" in played.written("/etc/apt/preferences.d/kubernetes")
    assert "apt-mark hold kubelet kubeadm kubectl" in played.commands


def test_a_worker_may_be_older_than_the_control_plane() -> None:
    """`image.kubernetes` is the version of workers, not of members."""
    cluster = replace(joined(TITAN).cluster, kubelet="1.35.4")

    assert Kubernetes(replace(joined(TITAN), cluster=cluster)).version == "1.35.4"
    assert Kubernetes(replace(joined(MEMBERS[0]), cluster=cluster)).version == "1.36.3"


@pytest.mark.parametrize("state", [None, "joined"])
def test_a_new_machine_gets_the_pinned_version(state: str | None) -> None:
    """Its image may have others, held. The packages of a node of the cluster stay until `kube upgrade`."""
    names = ("kubernetes-cni", "cri-tools", *PACKAGES)
    rows = [f"ii  {name}  1.36.0-1.1  amd64  -" for name in names] + ["ii  containerd.io  2.1.0-1~noble  amd64  -"]
    facts = UBUNTU.but({"deb.DebPackages": tuple(rows), Joined.name: (state,) if state else None})

    played = [Recorder(facts).play(role) for role in (Kubernetes(joined(TITAN)), Containers("2.2.1", DOCKER))]

    moved = [command for one in played for command in one.commands if "--allow-change-held-packages" in command]
    assert len(moved) == (0 if state else 2)
    assert state or ("kubeadm=1.36.3-*" in moved[0] and "containerd.io=2.2.1-*" in moved[1])


def test_kubelet_is_not_started_before_it_has_joined() -> None:
    """The unit of kubelet is enabled, and restarted only if it runs."""
    played = Recorder(UBUNTU).play(Kubernetes(joined(TITAN)))

    assert "systemctl try-restart kubelet.service" in played.commands
    assert not any("start kubelet" in command for command in played.commands if "try-restart" not in command)


def test_containerd_has_the_version_of_the_stack() -> None:
    """Only containerd comes from Docker's repository, in the version of the software set."""
    played = Recorder(UBUNTU).play(Containers("2.2.1", DOCKER))

    preferences = played.written("/etc/apt/preferences.d/docker")
    assert "Package: containerd.io\nPin: version 2.2.1-*\nPin-Priority: 990" in preferences
    assert 'Package: *\nPin: origin "download.docker.com"\nPin-Priority: -1' in preferences
    # Real kubelets of the tests run on this one.
    assert "containerd/v2 v2.2.1\n" in (HERE / "kube" / f"{CONTAINERD}.mod").read_text()
    assert "SystemdCgroup = true" in played.written(CONFIG)


def test_a_registry_is_asked_after_its_mirror() -> None:
    """Each registry with a mirror has a file, in which docker.io has the address of its API."""
    mirrors = {"docker.io": "https://mirror.lab.example"}

    text = (
        Recorder(UBUNTU).play(Containers("2.2.1", DOCKER, mirrors=mirrors)).written(f"{MIRRORS}/docker.io/hosts.toml")
    )

    assert "server = 'https://registry-1.docker.io'" in text
    assert "[host.'https://mirror.lab.example']" in text


def test_a_registry_without_tls_is_asked_by_http() -> None:
    """Else containerd would speak https to it; a registry with https needs no file."""
    jobs = lab_plan().jobs.model_copy(update={"registries": ("http://10.9.8.7:5000", "https://registry.lab.example")})
    fleet = load_fleet(EXAMPLES / "lab.yaml").fleet
    plan = plan_fleet(fleet.model_copy(update={"jobs": jobs}), lab_plan().record, load_catalog())
    cluster = cluster_plan(plan)
    assert cluster
    played = Recorder(UBUNTU).play(Containers("2.2.1", DOCKER, mirrors=cluster.mirrors))

    hosts = tomllib.loads(played.written(f"{MIRRORS}/10.9.8.7:5000/hosts.toml"))

    url = "http://10.9.8.7:5000"
    assert hosts == {"server": url, "host": {url: {"capabilities": ["pull", "resolve"]}}}
    assert not [path for path in played.disk.entries if "registry.lab.example" in path]


def test_only_a_bake_pulls_images() -> None:
    """The program with the credentials of ECR is there before; other machines wait for nothing."""
    image = f"111122223333.dkr.ecr.us-west-2.amazonaws.com/lab/base@sha256:{'0' * 64}"

    bake, machine = (
        Recorder(UBUNTU).play(Kubernetes(joined(TITAN), images), stages=["install"]) for images in ((image,), ())
    )

    assert bake.names[-2:] == ["Write the credential provider for ECR", f"Pull {image}"]
    assert f"{PROVIDERS}/ecr pull {image}" in str(bake.commands)
    assert not [name for name in machine.names if "Pull" in name or "ECR" in name]


def test_a_mirror_is_removed_with_its_key() -> None:
    """A mirror decides what the name of an image means: those that the fleet file does not name are removed."""
    facts = UBUNTU.but({MirroredRegistries.name: ("docker.io", "ghcr.io")})

    played = Recorder(facts).play(Containers("2.2.1", DOCKER, mirrors={"ghcr.io": "https://mirror.lab.example"}))

    assert "Remove the mirror of docker.io" in played.names
    assert "Remove the mirror of ghcr.io" not in played.names


@pytest.mark.parametrize(("system", "has_toolkit"), [("ubuntu-24.04", True), ("debian-12", False)])
def test_gpus_in_containers_need_the_toolkit(system: str, *, has_toolkit: bool) -> None:
    """NVIDIA's repository, and with it the toolkit, is for Ubuntu."""
    facts = recorded(system).but({HeldPackages.name: None})

    played = Recorder(facts).play(Containers("2.2.1", DOCKER, gpus=True), stages=["install"])

    assert (f"Install {TOOLKIT}" in played.names) is has_toolkit


def test_members_differ_in_name_and_address_only() -> None:
    """All members have the same cluster configuration, in which etcd knows all of them."""
    documents = [member_documents(joined(name)) for name in MEMBERS]

    assert documents[0][1] == documents[1][1] == documents[2][1]
    arguments = {entry["name"]: entry["value"] for entry in documents[0][1]["etcd"]["local"]["extraArgs"]}
    assert arguments["initial-cluster"].count("https://") == len(MEMBERS)
    assert arguments["initial-cluster-state"] == "existing"
    assert {document[0]["nodeRegistration"]["name"] for document in documents} == {*MEMBERS}


def test_everything_of_a_member_is_on_its_volume() -> None:
    """Data, certificates and the key of encryption survive the machine; nothing of them is on the root disk."""
    configuration = member_documents(joined(MEMBERS[0]))[1]
    arguments = {entry["name"]: entry["value"] for entry in configuration["apiServer"]["extraArgs"]}
    paths = (configuration["etcd"]["local"]["dataDir"], configuration["certificatesDir"])

    assert all(path.startswith("/var/lib/etcd/") for path in (*paths, arguments["encryption-provider-config"]))


def test_without_credentials_only_health_is_answered() -> None:
    """Anonymous requests, such as for `cluster-info`, are refused."""
    conditions = AUTHENTICATION_CONFIGURATION["anonymous"]["conditions"]  # type: ignore[index]

    assert {condition["path"] for condition in conditions} == {"/livez", "/readyz", "/healthz"}


def test_an_apply_of_a_member_starts_nothing_without_authorities() -> None:
    """The unit that makes the member's files has a condition, and kubelet starts after it, never without the volume."""
    played = Recorder(UBUNTU).play(Control(joined(MEMBERS[0])), stages=["configure", "activate"])

    unit = played.written("/etc/systemd/system/bedplate-member.service")
    assert "ConditionPathExists=/var/lib/etcd/pki/ca.key" in unit
    assert "After=bedplate-member.service" in file_text("control/kubelet.conf")
    assert "RequiresMountsFor=/var/lib/etcd" in file_text("control/kubelet.conf")


# --- the settings of kubelet, as the program on the node puts them together ---

METADATA = {
    "instance-id": "i-0123456789abcdef0",
    "placement/availability-zone": "us-west-2b",
    "instance-type": "p5.48xlarge",
    "local-ipv4": "10.64.64.21",
}


def run_settings(
    node: ClusterNode, folder: Path, facts: Mapping[str, str] = MappingProxyType({})
) -> tuple[dict[str, Any], str]:
    """Run the program with the node's files; return kubelet's configuration, and its arguments."""
    for file in kubelet_files(node):
        if file.path.startswith(FOLDER):
            path = folder / "etc" / file.path.removeprefix(f"{FOLDER}/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(file.text)
    with metadata_service(facts) as url:
        variables = {"ETC": f"{folder}/etc", "RUN": f"{folder}/run", "RESOLVED": f"{folder}/none"}
        subprocess.run(
            ["bash", "-s"],
            input=file_text("kubernetes/kubelet-settings"),
            env={**os.environ, **variables, "AWS_EC2_METADATA_SERVICE_ENDPOINT": url},
            check=True,
            capture_output=True,
            text=True,
        )
    return read_yaml((folder / "run/kubelet.yaml").read_text()), (folder / "run/kubelet.env").read_text()


def train(name: str = "lab") -> ClusterNode:
    """Return the machines of the first pool of workers of an example."""
    plan = plan_of(EXAMPLES / f"{name}.yaml")
    cluster = cluster_plan(plan)
    assert cluster
    return pool_node_kinds(cluster, next(pool for pool in plan.pools if pool.use == "kubernetes"), load_catalog())


def test_an_instance_registers_its_type_and_zone(tmp_path: Path) -> None:
    """Name, provider id, zone and type are the instance's own; labels and taints those of its type."""
    configuration, arguments = run_settings(train(), tmp_path, METADATA)

    assert configuration["providerID"] == "aws:///us-west-2b/i-0123456789abcdef0"
    assert {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"} in configuration["registerWithTaints"]
    assert "--hostname-override=train-9abcdef0.us-west-2 --node-ip=10.64.64.21" in arguments
    assert "node.kubernetes.io/instance-type=p5.48xlarge,topology.kubernetes.io/zone=us-west-2b" in arguments
    assert "bedplate/group=train" in arguments
    assert f"--image-credential-provider-config={tmp_path}/etc/credentials.yaml" in arguments


def test_a_type_that_the_file_does_not_name_gets_the_common_settings(tmp_path: Path) -> None:
    """With `similar: true` AWS may choose another type."""
    configuration, arguments = run_settings(train("simulators"), tmp_path, METADATA | {"instance-type": "c5a.24xlarge"})

    assert {"key": "lab.example/spot", "value": "sim", "effect": "NoSchedule"} in configuration["registerWithTaints"]
    assert "node.kubernetes.io/instance-type=c5a.24xlarge" in arguments


def test_an_unknown_type_is_refused(tmp_path: Path) -> None:
    """A node with the labels of another type would get the wrong pods."""
    with pytest.raises(subprocess.CalledProcessError) as error:
        run_settings(train(), tmp_path, METADATA | {"instance-type": "g6.xlarge"})

    assert "no settings for this instance type" in error.value.stderr


def test_a_sites_machine_asks_no_metadata_service(tmp_path: Path) -> None:
    """Its name, address and provider id are in the plan."""
    configuration, arguments = run_settings(joined(TITAN), tmp_path)

    assert configuration["providerID"] == "bedplate://cellar/titan-01"
    assert "--hostname-override=titan-01.cellar --node-ip=192.168.40.21" in arguments


@pytest.mark.parametrize("name", ["approver", "capacity"])
@pytest.mark.parametrize("state", ["", "joined"])
def test_a_member_starts_its_services_when_the_cluster_exists(name: str, state: str) -> None:
    """Before `kube init` a second run changes nothing; a unit of the cluster is enabled, and starts with the member."""
    unit = f"bedplate-{name}.service"
    (role,) = (role for role in roles_of(lab_node(MEMBERS[0])) if role.name == name)
    states = ("inactive", f"multi-user.target.wants/{unit}")
    facts = UBUNTU.but({Joined.name: (state,) if state else None, UnitStates.name: states})

    member = Recorder(facts)
    member.play(role)

    assert member.play(role).commands == ([f"systemctl start {unit}"] if state else [])
    assert f"systemctl --root=/ --quiet enable {unit}" in Recorder(UBUNTU).play(role).commands
    assert unit in re.findall(r"^Wants=(.*)", file_text("control/bedplate-member.service"), re.MULTILINE)[0].split()


def test_members_run_the_controller_of_capacity() -> None:
    """Members have the plan of all workers, and of no group for SSH; workers do not run it."""
    member = lab_node(MEMBERS[0])
    (role,) = (role for role in roles_of(member) if isinstance(role, Capacity))
    played = Recorder(UBUNTU).play(role)

    plan = read_capacity_document(played.written(PLAN), PLAN)
    assert plan == member.capacity
    assert {pool.group for pool in plan.pools} == {"train", "burst", "sim"}
    assert "capacity" not in names_of(worker())
