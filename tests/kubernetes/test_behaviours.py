"""Behaviours that users of a cluster rely on, each shown once on two real kubelets: of a pool, and of a site.

flannel, kube-proxy and CoreDNS run from the manifests of `kube addons apply`, in images that are built here.
"""

import json
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from ipaddress import IPv4Address
from pathlib import Path
from time import sleep
from typing import Any

import pytest
from ruamel.yaml import YAML

from bedplate.kubernetes.apply import apply_objects
from bedplate.kubernetes.client import ClusterClient
from bedplate.plan.cluster import ClusterPlan, cluster_plan
from tests.testlab.fleets.variants import lab_plan
from tests.testlab.kubernetes.control_plane import ControlPlane, free_ports, wait_until
from tests.testlab.kubernetes.images import IMAGE, addon_images
from tests.testlab.kubernetes.joined_node import CASES, Running, cluster, machine
from tests.testlab.kubernetes.real_node import HOST, NODE, OTHER, pod
from tests.testlab.kubernetes.upstream import MIRROR, runnable_objects
from tests.testlab.run import lack

REGION, SITE = "us-west-2", "cellar"
GPUS = "nvidia.com/gpu"
# wget has a timeout of its own, with which it crashes in Debian 12.
_FETCH = "until timeout 3 wget -q -O - {}; do sleep 1; done"


@dataclass
class Lab:
    """A worker of a pool and a machine of a site in one cluster, which has the add-ons."""

    worker: Running
    titan: Running
    plan: ClusterPlan

    def kubectl(self, *words: str, text: str = "") -> str:
        """Run kubectl as an administrator."""
        return self.worker.kubectl(*words, text=text)

    def create(self, document: str, namespace: str = "default") -> None:
        """Create an object."""
        self.kubectl("create", "-n", namespace, "-f", "-", text=document)

    def status(self, name: str, namespace: str = "default") -> dict[str, Any]:
        """Return the status of a pod."""
        status: dict[str, Any] = json.loads(self.kubectl("get", "pod", name, "-n", namespace, "-o=json"))["status"]
        return status

    def address(self, name: str) -> str:
        """Return the address of a pod, once it runs."""
        assert wait_until(lambda: self.status(name)["phase"] == "Running", 90), self.status(name)
        address: str = self.status(name)["podIP"]
        return address

    def end(self, name: str, namespace: str = "default") -> tuple[int, str]:
        """Return the exit status and the output of a pod's container, once it has ended."""

        def end() -> Any:  # noqa: ANN401
            containers = self.status(name, namespace).get("containerStatuses", [{"state": {}}])
            return containers[0]["state"].get("terminated")

        assert wait_until(end, 90), self.status(name, namespace)
        return end()["exitCode"], end().get("message", "")

    def waits(self, name: str) -> str:
        """Return why the scheduler does not place a pod."""

        def reasons() -> list[str]:
            return [entry.get("message", "") for entry in self.status(name).get("conditions", ())]

        assert wait_until(reasons, 30)
        return " ".join(reasons())


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Yield two nodes that have joined and passed their gates, after `kube addons apply`."""
    if not MIRROR.exists():
        lack("needs upstream's manifests: `python -m tests.testlab.kubernetes` fetches them")
    with ExitStack() as stack:
        approvers = stack.enter_context(cluster())
        planned = cluster_plan(lab_plan())
        assert planned
        plan = replace(planned, api=HOST)
        apply_objects(ClusterClient(approvers.plane.client()), runnable_objects(lab_plan(), plan))
        images = addon_images(approvers.plane.programs, plan, tmp_path_factory.mktemp("images"))
        worker, titan = (
            stack.enter_context(machine(approvers, CASES[kind], tmp_path_factory.mktemp(kind), address, images))
            for kind, address in (("pool", NODE), ("site", OTHER))
        )
        for node in (worker, titan):
            node.join()
            node.pass_gate()
        titan.machine.spawn(f"{approvers.plane.programs}/fake-gpus", "4")
        yield Lab(worker, titan, plan)


def server(name: str, region: str, app: str = "") -> str:
    """Return a pod of a region or site that serves its name, and a file of 1 MB, on port 8080."""
    script = "cd /dev/shm; hostname > index.html; head -c 1000000 /dev/zero > big; exec httpd -f -p 8080"
    return pod(name, [GPUS], {"app": app or name}, in_region(region), command=["sh", "-c", script])


def job(name: str, script: str, region: str = REGION, spec: Mapping[str, Any] | None = None, **container: Any) -> str:  # noqa: ANN401
    """Return a pod that runs a shell script once; the output becomes the message of its end."""
    command = ["sh", "-c", f"{{ {script}; }} > /dev/termination-log 2>&1"]
    more = {**in_region(region), "restartPolicy": "Never", **(spec or {})}
    return pod(name, [GPUS], spec=more, command=command, **container)


def in_region(region: str) -> dict[str, Any]:
    """Return the part of a pod's spec that selects the nodes of a region or site."""
    return {"nodeSelector": {"topology.kubernetes.io/region": region}}


def service(name: str, **spec: object) -> str:
    """Return a Service of the pods with the label `app` of its name."""
    ports = [{"port": 80, "targetPort": 8080}]
    document = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}}
    return json.dumps({**document, "spec": {"selector": {"app": name}, "ports": ports, **spec}})


def test_the_addons_run(lab: Lab) -> None:
    """Each node has flannel and kube-proxy, and two servers of CoreDNS are ready."""
    workloads = ("kube-flannel daemonset/kube-flannel-ds", "kube-system daemonset/kube-proxy")
    for namespace, workload in map(str.split, (*workloads, "kube-system deployment/coredns")):
        lab.kubectl("rollout", "status", workload, "-n", namespace, "--timeout=100s")


def test_pods_reach_pods_of_other_nodes(lab: Lab) -> None:
    """A pod in a region reads a file from one at a site by its address; packets leave room for the overlay."""
    lab.create(server("far", SITE))
    address = lab.address("far")
    lab.create(job("near", f"{_FETCH.format(f'{address}:8080/big')} | wc -c; cat /sys/class/net/eth0/mtu"))

    assert lab.end("near")[1].split() == ["1000000", str(lab.plan.mtu - 50)]
    assert IPv4Address(address) in lab.plan.pods


def test_a_service_has_a_name_and_an_address(lab: Lab) -> None:
    """Each of both leads to the pods of both nodes."""
    for name, region in (("web-1", REGION), ("web-2", SITE)):
        lab.create(server(name, region, "web"))
    lab.create(service("web"))
    address = lab.kubectl("get", "service", "web", "-o=jsonpath={.spec.clusterIP}")

    for number, host in enumerate(("web", "web.default.svc.cluster.local", address)):
        both = f"until test $(sort -u /dev/shm/names | wc -l) = 2; do {_FETCH.format(host)} >> /dev/shm/names; done"
        lab.create(job(f"ask-{number}", f"touch /dev/shm/names; {both}; sort -u /dev/shm/names"))

    assert [lab.end(f"ask-{number}") for number in range(3)] == [(0, "web-1\nweb-2\n")] * 3


def test_names_of_a_headless_service_are_its_pods(lab: Lab) -> None:
    """DNS answers with the addresses of the pods, to pods of each node."""
    lab.create(server("peer", SITE, "peers"))
    lab.create(service("peers", clusterIP="None"))
    address = lab.address("peer")

    for region in (REGION, SITE):
        script = f"until nslookup peers.default.svc.cluster.local | grep {address}; do sleep 1; done"
        lab.create(job(f"lookup-{region}", script, region))
        assert address in lab.end(f"lookup-{region}")[1]


def test_a_config_map_is_files_and_variables(lab: Lab) -> None:
    """A pod reads it in both ways."""
    lab.kubectl("create", "configmap", "settings", "--from-literal=RATE=0.001")
    volumes = {"volumes": [{"name": "settings", "configMap": {"name": "settings"}}]}
    mounts = [{"name": "settings", "mountPath": "/settings"}]
    variables = [{"configMapRef": {"name": "settings"}}]
    lab.create(
        job("reads", "cat /settings/RATE; echo; echo $RATE", spec=volumes, volumeMounts=mounts, envFrom=variables)
    )

    assert lab.end("reads") == (0, "0.001\n0.001\n")


def test_a_secret_is_in_memory_only(lab: Lab) -> None:
    """A pod reads its files, which no disk has."""
    lab.kubectl("create", "secret", "generic", "key", "--from-literal=word=parsnip")
    volumes = {"volumes": [{"name": "key", "secret": {"secretName": "key"}}]}
    script = "cat /key/word; echo; grep ' /key ' /proc/mounts"
    lab.create(job("secretive", script, spec=volumes, volumeMounts=[{"name": "key", "mountPath": "/key"}]))

    word, mount = lab.end("secretive")[1].splitlines()
    assert (word, mount.split()[0]) == ("parsnip", "tmpfs")


def test_a_home_is_the_same_folder_as_on_the_machine(lab: Lab) -> None:
    """A pod with the claim of a site's store runs at this site, as its person, in the person's folder only."""
    uid = lab_plan().accounts.uids["grace"]
    lab.titan.machine.shell(f"install -d -o {uid} -g {uid} -m 700 /home/grace; echo data > /home/grace/old")
    user = {"runAsUser": uid, "runAsGroup": uid}
    volumes = [{"name": "home", "persistentVolumeClaim": {"claimName": "cellar-home"}}]
    spec = {"nodeSelector": {}, "securityContext": user, "volumes": volumes}
    mounts = [{"name": "home", "mountPath": "/home/grace"}]
    limits = {"allowPrivilegeEscalation": False}
    script = "cd /home/grace && cat old && echo result > new"
    lab.create(job("writes", script, spec=spec, volumeMounts=mounts, securityContext=limits), "grace")

    assert lab.end("writes", "grace") == (0, "data\n")
    assert lab.titan.machine.shell("cat /home/grace/new; stat -c %u /home/grace/new").split() == ["result", str(uid)]


def _shared_store(folder: str) -> str:
    """Return a volume and a claim of grace with a folder of the site's machine."""
    claim = {"namespace": "grace", "name": "shared"}
    common = {"accessModes": ["ReadWriteMany"], "storageClassName": ""}
    size, place = {"storage": "1Gi"}, {"key": "topology.kubernetes.io/region", "operator": "In", "values": [SITE]}
    affinity = {"required": {"nodeSelectorTerms": [{"matchExpressions": [place]}]}}
    volume = {**common, "capacity": size, "claimRef": claim, "local": {"path": folder}, "nodeAffinity": affinity}
    parts = (
        ("PersistentVolume", {"name": "grace.shared"}, volume),
        ("PersistentVolumeClaim", claim, {**common, "volumeName": "grace.shared", "resources": {"requests": size}}),
    )
    documents = ({"apiVersion": "v1", "kind": kind, "metadata": meta, "spec": spec} for kind, meta, spec in parts)
    return "\n---\n".join(map(json.dumps, documents))


def test_files_of_others_stay_theirs(lab: Lab) -> None:
    """A person reads no closed file of a shared store: by no group of volume or image, nor below a closed folder."""
    plane, uids = lab.worker.approvers.plane, lab_plan().accounts.uids
    uid, other = uids["grace"], uids["ada"]
    files = "/opt/shared/ada /opt/shared/ada/key /opt/shared/ada/open"
    lab.titan.machine.shell(
        f"mkdir -p /opt/shared/ada/open; echo secret | tee /opt/shared/ada/key /opt/shared/ada/open/key >/dev/null; "
        f"chown -R {other}:{other} /opt/shared/ada; chmod 700 /opt/shared/ada; chmod 600 /opt/shared/ada/key"
    )
    before = lab.titan.machine.shell(f"stat -c '%n %u:%g %a' {files}")
    lab.kubectl("create", "-f", "-", text=_shared_store("/opt/shared"))
    token = plane.kubectl("create", "token", "grace", "-n", "people").strip()

    def create(name: str, group: Mapping[str, int], part: Mapping[str, str]) -> tuple[int, str]:
        user = {"runAsUser": uid, "runAsGroup": uid, **group}
        volumes = [{"name": "shared", "persistentVolumeClaim": {"claimName": "shared"}}]
        mounts = [{"name": "shared", "mountPath": "/shared", **part}]
        limits = {"allowPrivilegeEscalation": False}
        script = "id -G; cat /shared/ada/key /shared/ada/open/key || true"
        spec = {"nodeSelector": {}, "securityContext": user, "volumes": volumes}
        document = job(name, script, spec=spec, volumeMounts=mounts, securityContext=limits)
        return plane.as_person(token, "create", "-n", "grace", "-f", "-", text=document)

    assert "cannot have fsGroup" in create("group", {"fsGroup": uid}, {})[1]
    assert "delete subPath" in create("part", {}, {"subPath": "ada/open"})[1]
    assert create("whole", {}, {})[0] == 0
    groups, *answers = lab.end("whole", "grace")[1].splitlines()
    assert (groups, sum("Permission denied" in answer for answer in answers)) == (str(uid), 2)
    assert lab.titan.machine.shell(f"stat -c '%n %u:%g %a' {files}") == before


_NET_RAW = 13  # capabilities(7)


def test_containers_of_people_send_no_raw_packets(lab: Lab) -> None:
    """A plain pod of a person has the usual capabilities but this one; a pod of an administrator's namespace has it."""
    script = "sed -n 's/^CapBnd:\\t//p' /proc/self/status"
    for namespace in ("grace", "default"):
        lab.create(job("bounded", script), namespace)

    people, others = (int(lab.end("bounded", namespace)[1], 16) for namespace in ("grace", "default"))

    assert others & ~people == 1 << _NET_RAW


def test_a_taint_keeps_other_pods_away(lab: Lab) -> None:
    """A pod without a toleration of GPUs is not placed on a machine that has them."""
    lab.create(pod("stranger", spec=in_region(SITE)))

    assert "1 node(s) had untolerated taint(s)" in lab.waits("stranger")


def test_each_gpu_has_one_pod(lab: Lab) -> None:
    """A pod gets the GPUs that it asks for; the next one waits until enough are free."""
    assert wait_until(lambda: lab.titan.node()["status"]["allocatable"].get(GPUS) == "4", 60)
    script = "echo $NVIDIA_VISIBLE_DEVICES"

    lab.create(pod("first", [GPUS], spec=in_region(SITE), resources={"limits": {GPUS: "3"}}))
    lab.address("first")
    lab.create(job("second", script, SITE, resources={"limits": {GPUS: "2"}}))
    assert f"Insufficient {GPUS}" in lab.waits("second")
    lab.kubectl("delete", "pod", "first")

    devices = lab.end("second")[1].split()
    assert len(devices) == 2
    assert set(devices) <= {f"fake-{number}" for number in range(4)}


def test_a_researcher_runs_a_job(lab: Lab, tmp_path: Path) -> None:
    """The longer job of the page for researchers runs with a person's rights; they read its output and open a page."""
    plane, uid = lab.worker.approvers.plane, lab_plan().accounts.uids["grace"]
    lab.titan.machine.shell(f"install -d -o {uid} -g {uid} -m 700 /home/grace")
    text = Path("docs/researchers.md").read_text().split("```yaml\n")[2].partition("```")[0]
    job = YAML(typ="safe").load(text.replace("20001", str(uid)).replace("claimName: home", "claimName: cellar-home"))
    (container,) = job["spec"]["template"]["spec"]["containers"]
    script = "cd /dev/shm; echo loss 0.1 > index.html; echo started; exec httpd -f -p 6006"
    limits = {"limits": {GPUS: "4"}}
    container |= {"image": IMAGE, "imagePullPolicy": "Never", "command": ["sh", "-c", script], "resources": limits}
    token = plane.kubectl("create", "token", "grace", "-n", "people").strip()

    status, output = plane.as_person(token, "apply", "-n", "grace", "-f", "-", text=json.dumps(job))
    assert status == 0, output
    log = ("logs", "-n", "grace", "job/train")
    assert wait_until(lambda: plane.as_person(token, *log) == (0, "started\n"), 60), plane.as_person(token, *log)
    (port,) = free_ports(1)
    forward = ("port-forward", "-n", "grace", "job/train", f"{port}:6006")
    with (tmp_path / "forward.log").open("wb") as stream:
        command = (f"{plane.programs}/kubectl", *plane.token_options(token), *forward)
        process = subprocess.Popen(command, stdout=stream, stderr=stream)
    page = ("curl", "--silent", "--max-time", "3", f"http://127.0.0.1:{port}/")
    assert wait_until(lambda: subprocess.run(page, capture_output=True, check=False).stdout == b"loss 0.1\n", 30)
    process.kill()
    process.wait()
    assert plane.as_person(token, "delete", "job", "train", "-n", "grace")[0] == 0


def test_a_deleted_pod_has_its_grace_period(lab: Lab) -> None:
    """It gets SIGTERM and ends by itself; one that ignores the signal is killed when the period is over."""
    saves = "trap 'sleep 2; echo saved; exit 0' TERM; sleep infinity & wait"
    lab.create(job("saves", saves, spec={"terminationGracePeriodSeconds": 60}))
    lab.create(job("ignores", "trap '' TERM; sleep infinity", spec={"terminationGracePeriodSeconds": 3}))
    for name in ("saves", "ignores"):
        lab.address(name)
        # The object stays until the test has read it.
        lab.kubectl("patch", "pod", name, "--patch", '{"metadata": {"finalizers": ["bedplate/test"]}}')
    lab.kubectl("delete", "pod", "saves", "ignores", "--wait=false")

    assert lab.end("saves") == (0, "saved\n")
    assert lab.end("ignores")[0] == 137
    for name in ("saves", "ignores"):
        lab.kubectl("patch", "pod", name, "--patch", '{"metadata": {"finalizers": null}}')


def test_pods_run_on_while_the_api_is_away(lab: Lab) -> None:
    """After an outage they are the same pods, and their Service answers during it; no pod is evicted.

    90 s stand for an hour: each program notices the outage after 60 s at most. A longer outage would add only two
    limits, which are not tested here: that of evictions, and the lifetime of the pods' tokens.
    """
    lab.create(server("steady", SITE))
    lab.create(service("steady"))
    address = lab.kubectl("get", "service", "steady", "-o=jsonpath={.spec.clusterIP}")
    lab.address("steady")
    identity = ("get", "pod", "steady", "-o=jsonpath={.metadata.uid} {.status.containerStatuses[0].restartCount}")
    before, plane = lab.kubectl(*identity), lab.worker.approvers.plane
    assert isinstance(plane, ControlPlane)

    plane.stop_server()
    sleep(90)
    page = lab.worker.machine.shell(f"curl --noproxy '*' -sf -m 10 http://{address}")
    plane.start_server()

    assert page == "steady\n"
    ready = "-o=jsonpath={.items[*].status.conditions[?(@.type=='Ready')].status}"
    # Controllers and kubelets watch again after 60 s at most. Until then controllers see no new leases and mark nodes
    # as Unknown, and kubelets do not see the mark.
    sleep(75)
    assert wait_until(lambda: lab.kubectl("get", "nodes", ready) == "True True", 45)
    unreachable = "-o=jsonpath={.items[*].spec.taints[?(@.key=='node.kubernetes.io/unreachable')].key}"
    assert wait_until(lambda: not lab.kubectl("get", "nodes", unreachable), 15)
    assert lab.kubectl(*identity) == before


def test_a_quota_limits_a_namespace(lab: Lab) -> None:
    """Pods above it are refused until others are deleted; people cannot open ports on nodes."""
    lab.kubectl("create", "namespace", "small")
    lab.worker.approvers.plane.wait_for_namespace("small")
    lab.kubectl("create", "quota", "one", "--hard=pods=1", "-n", "small")
    assert wait_until(lambda: "pods: 0/1" in lab.kubectl("get", "quota", "-n", "small"), 30)
    lab.create(pod("only"), "small")
    create = lab.worker.approvers.plane.try_kubectl

    assert "exceeded quota: one" in create("create", "-n", "small", "-f", "-", text=pod("more")).stderr
    lab.kubectl("delete", "pod", "only", "-n", "small")
    assert wait_until(lambda: create("create", "-n", "small", "-f", "-", text=pod("more")).returncode == 0, 30)
    opened = create("create", "-n", "grace", "-f", "-", text=service("door", type="NodePort"))
    assert "exceeded quota: default" in opened.stderr


_SPREAD = {
    "topologySpreadConstraints": [
        {
            "maxSkew": 1,
            "topologyKey": "kubernetes.io/hostname",
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": {"app": "kept"}},
        }
    ]
}


def test_pods_of_a_lost_machine_start_on_another(lab: Lab) -> None:
    """Once EC2 has no such instance, its Node is deleted; the Deployment is complete again, and its Service answers."""
    kept = json.loads(server("kept", REGION))
    pods = {"metadata": kept["metadata"], "spec": {**kept["spec"], "nodeSelector": {}, **_SPREAD}}
    spec = {"replicas": 2, "selector": {"matchLabels": {"app": "kept"}}, "template": pods}
    lab.create(json.dumps({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "kept"}, "spec": spec}))
    lab.create(service("kept"))
    lab.kubectl("rollout", "status", "deployment/kept", "--timeout=60s")
    nodes = ("get", "pods", "-l=app=kept", "-o=jsonpath={.items[*].spec.nodeName}")
    worker, titan = lab.worker.case.name, lab.titan.case.name
    assert sorted(lab.kubectl(*nodes).split()) == sorted((worker, titan))

    lab.worker.machine.stop()
    del lab.worker.approvers.machines[worker]
    lab.worker.approvers.ahead += 3600

    assert wait_until(lambda: worker not in lab.kubectl("get", "nodes"), 60)
    assert wait_until(lambda: lab.kubectl(*nodes).split() == [titan, titan], 120)
    lab.kubectl("rollout", "status", "deployment/kept", "--timeout=60s")
    # By address: CoreDNS is on members, which this cluster lacks, and was on the lost machine instead.
    address = lab.kubectl("get", "service", "kept", "-o=jsonpath={.spec.clusterIP}")
    lab.create(job("after", "; ".join([_FETCH.format(address)] * 10), SITE))
    assert len(lab.end("after")[1].split()) == 10
