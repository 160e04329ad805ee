"""One cluster of the example `lab.yaml`, from `bedplate up` to the removal of a person; the tests run in this order.

What is real and what is replaced: docs/testing.md, "A whole cluster".
"""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from bedplate.plan.cluster import cluster_plan
from tests.testlab.fleets.variants import lab_plan
from tests.testlab.kubernetes.control_plane import wait_until
from tests.testlab.kubernetes.images import addon_images
from tests.testlab.kubernetes.real_node import need_real_nodes, pod
from tests.testlab.kubernetes.upstream import MIRROR
from tests.testlab.kubernetes.whole import FIRST, TITAN, Case, WholeCluster, whole_cluster
from tests.testlab.machines.control_plane import NAMES
from tests.testlab.run import lack

GPUS = "nvidia.com/gpu"
_TOLERATED = (GPUS,)
_GATE = "bedplate/gate=pending:NoSchedule"
_NEEDED = ("openvpn", "dnsmasq", "sshd", "ssh-agent", "systemd-socket-activate", "curl")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WholeCluster]:
    """Yield the laboratory; the tests build the cluster."""
    programs = need_real_nodes(*_NEEDED)
    if not MIRROR.exists():
        lack("needs upstream's manifests: `python -m tests.testlab.kubernetes` fetches them")
    with (
        pytest.MonkeyPatch.context() as patch,
        whole_cluster(tmp_path_factory.mktemp("whole"), programs, patch) as cluster,
    ):
        yield cluster


@pytest.fixture(scope="module")
def images(whole: WholeCluster, tmp_path_factory: pytest.TempPathFactory) -> Sequence[Path]:
    """Return the archives with the images of add-ons."""
    cluster = cluster_plan(lab_plan())
    assert cluster
    return addon_images(whole.programs, cluster, tmp_path_factory.mktemp("images"))


def test_up_starts_three_members(whole: WholeCluster, images: Sequence[Path]) -> None:
    """One command from the stacks to the API, by ssh over the VPN; nothing is left for a second one."""
    whole.add_router(images)
    done = whole.bedplate("up", "--yes")

    assert done.returncode == 0, done.stdout + done.stderr
    assert all(f"{name}: ready" in done.stdout.splitlines() for name in NAMES), done.stdout
    second = whole.bedplate("kube", "init")
    assert "control plane: runs" in second.stdout, second.stdout + second.stderr
    whole.open_api()
    nodes = whole.api.kubectl("get", "nodes", "--output=name", "--selector=node-role.kubernetes.io/control-plane")
    assert nodes.split() == [f"node/{name}" for name in NAMES]


def test_the_network_of_pods_is_applied(whole: WholeCluster) -> None:
    """`kube addons apply` on the laptop: cluster DNS runs on the pods router before there is a worker."""
    done = whole.bedplate("kube", "addons", "apply")

    assert done.returncode == 0, done.stdout + done.stderr
    whole.api.kubectl("wait", "--for=condition=Ready", f"node/{FIRST}", "--timeout=100s")
    ready = ("wait", "--for=jsonpath={.status.readyReplicas}", "deployment/coredns", "--namespace=kube-system")
    whole.api.kubectl(*ready, "--timeout=100s")


def test_workers_of_two_regions_and_of_a_site_join(whole: WholeCluster, images: Sequence[Path]) -> None:
    """Instances with the approver's token, the site's machine by `kube join`; each registers what the plan promises."""
    for case in whole.cases():
        worker = whole.add_worker(case, images)
        if case.facts:
            (worker.machine.root / "token").write_text(f"{whole.approvers.approver.make_token()}\n")
            worker.root_shell("bedplate-worker join")
        else:
            whole.serve_logins(worker)
            done = whole.bedplate("kube", "join", case.name)
            assert "joined the cluster" in done.stdout, done.stdout + done.stderr
        worker.start(whole.programs)

    providers = {
        "us-west-2": "aws:///us-west-2a/i-",
        "us-east-1": "aws:///us-east-1a/i-",
        "cellar": "bedplate://cellar/",
    }
    for worker in whole.workers.values():
        node, case = worker.ready_node(whole.api), worker.case
        promised = case.promised.labels
        labels = node["metadata"]["labels"]
        taints = {f"{taint['key']}={taint.get('value', '')}:{taint['effect']}" for taint in node["spec"]["taints"]}
        assert {key: labels.get(key) for key in promised} == promised
        assert {key for key in labels if key.startswith("bedplate/")} <= promised.keys()
        assert {taint for taint in taints if not taint.startswith("node.kubernetes.io/")} == {
            _GATE,
            *case.promised.taints,
        }
        assert node["spec"]["providerID"].startswith(providers[case.place])


def test_a_gpu_job_runs_on_each_kind_of_worker(whole: WholeCluster) -> None:
    """The job of each place waits until the machine has passed its gate."""
    workers = whole.workers.values()
    for worker in workers:
        worker.machine.spawn(f"{whole.programs}/fake-gpus", "4")
        _create_job(whole, worker.case, "test -n $NVIDIA_VISIBLE_DEVICES", {GPUS: "1"})
    time.sleep(3)
    phases = whole.api.kubectl("get", "pods", "--output=jsonpath={.items[*].status.phase}")
    assert phases.split() == ["Pending"] * len(workers)

    for worker in workers:
        worker.pass_gate()

    for worker in workers:
        assert _ended_on(whole, worker.case) == worker.case.name


def test_a_laptop_opens_the_page_of_a_pod_by_name(whole: WholeCluster) -> None:
    """The pod runs in the region that is not the home region; a pod of the site opens the page too."""
    script = "cd /dev/shm; head -c 300000 /dev/zero | tr '\\0' x > page; echo serves; exec httpd -f -p 6006"
    east = {"nodeSelector": {"topology.kubernetes.io/region": "us-east-1"}}
    whole.api.kubectl(
        *("create", "--namespace=grace", "-f", "-"),
        text=pod("board", _TOLERATED, {"app": "board"}, east, command=["sh", "-c", script]),
    )
    whole.api.kubectl("expose", "pod", "board", "--namespace=grace", "--port=6006")
    whole.api.kubectl("wait", "--for=condition=Ready", "pod/board", "--namespace=grace", "--timeout=100s")
    page = ("curl", "--silent", "--show-error", "--max-time", "10", "http://board.grace.pods.lab.internal:6006/page")

    opened = wait_until(lambda: whole.on_laptop("grace", *page).stdout == "x" * 300_000, 60)

    assert opened, whole.on_laptop("grace", *page)
    titan = whole.workers[TITAN].case
    fetch = "until timeout 3 wget -q -O - board.grace:6006/page; do sleep 1; done"
    _create_job(whole, titan, f"test $({fetch} | wc -c) = 300000", {}, "fetch")
    assert _ended_on(whole, titan, "fetch") == TITAN


def _create_job(whole: WholeCluster, case: Case, script: str, limits: Mapping[str, str], name: str = "train") -> None:
    """Create a Job that runs a shell script in the place of a worker."""
    spec = {"restartPolicy": "Never", "nodeSelector": {"topology.kubernetes.io/region": case.place}}
    resources = {"limits": dict(limits)}
    template = json.loads(pod(name, _TOLERATED, spec=spec, command=["sh", "-c", script], resources=resources))
    job = {"backoffLimit": 0, "template": {"spec": template["spec"]}}
    metadata = {"name": f"{name}-{case.place}"}
    document = {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": job}
    whole.api.kubectl("create", "-f", "-", text=json.dumps(document))


def _ended_on(whole: WholeCluster, case: Case, name: str = "train") -> str:
    """Return the node of a Job's pod, after the Job has completed."""
    job = f"{name}-{case.place}"
    whole.api.kubectl("wait", "--for=condition=complete", f"job/{job}", "--timeout=110s")
    return whole.api.kubectl("get", "pods", f"--selector=job-name={job}", "-o=jsonpath={.items[*].spec.nodeName}")


def test_a_removed_person_is_refused_within_a_minute(whole: WholeCluster) -> None:
    """Kubectl on her laptop lists her pods with a token by her SSH key; after `person remove` it does not."""
    written = whole.bedplate("kube", "access", "grace", "--write", "grace.kubeconfig")
    assert written.returncode == 0, written.stderr
    ask = (f"{whole.programs}/kubectl", "--kubeconfig=grace.kubeconfig", "get", "pods", "--output=name")
    listed = whole.on_laptop("grace", *ask)
    assert listed.stdout == "pod/board\n", listed.stderr
    logs = whole.on_laptop("grace", *ask[:2], "logs", "board")
    assert logs.stdout == "serves\n", logs.stderr
    token = whole.on_laptop("grace", *whole.token_request("grace"))

    removed = whole.bedplate("person", "remove", "grace")
    end = time.monotonic() + 60

    assert "the cluster refuses the tokens of grace" in removed.stdout, removed.stderr
    assert (removed.returncode, "the fleet file still declares them" in removed.stderr) == (6, True)
    assert wait_until(lambda: whole.on_laptop("grace", *ask).returncode, end - time.monotonic())
    words = (json.loads(token.stdout)["status"]["token"], "get", "pods", "--namespace=grace")
    # An API server remembers for some seconds that a token is valid; her rights are gone at once.
    assert whole.api.as_person(*words)[0] == 1
    invalid = ("Unauthorized", "logged in")
    assert wait_until(lambda: any(word in whole.api.as_person(*words)[1] for word in invalid), end - time.monotonic())
    # Her laptop keeps the token, which the cluster refuses; without it, she gets no other.
    assert "no account of yours" in whole.on_laptop("grace", *ask, XDG_CACHE_HOME=str(whole.fleet.parent)).stderr
    assert wait_until(lambda: not whole.api.kubectl("get", "pods", "--namespace=grace", "--output=name"), 60)
