"""A control plane of the previous minor version is upgraded by `bedplate kube upgrade`, with real programs of both.

Containers are replaced by processes: see `tests.testlab.machines.control_plane`. The tests run in this order.
"""

import multiprocessing
import os
import re
import signal
from collections.abc import Iterator

import pytest

from bedplate.cli import run
from bedplate.operate import cluster_machines
from tests.testlab.kubernetes.binaries import find_previous, find_programs
from tests.testlab.machines.control_plane import NAMES, ControlPlane, control_plane
from tests.testlab.machines.upgrade import Upgrading, longest_gap, serve_packages
from tests.testlab.network.netlab import LabHost, until
from tests.testlab.run import lack

pytestmark = pytest.mark.nightly
FIRST, SECOND, THIRD = NAMES
TITAN = "titan-01.cellar"
OLD, NEW = "v1.35.4", "v1.36.3"
# Holds an installation after dpkg has ended, while /run/hold exists.
_HOOK = 'DPkg::Post-Invoke {"touch /run/installed; while test -e /run/hold; do sleep 0.1; done";};'


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Upgrading]:
    """Yield the members of a cluster with the old version, which has not started."""
    old, new = find_previous(), find_programs()
    if not (old and new):
        lack("needs two minor versions of Kubernetes: python -m tests.testlab.kubernetes")
    versions, labs = {OLD: old, NEW: new}, list[Upgrading]()

    def set_up(plane: ControlPlane, switch: LabHost) -> None:
        client = plane.lab.host("client")
        plane.lab.wire((client, "eth0", f"{plane.address(FIRST) + 4000}/16"), (switch, "p9", ""))
        switch.run("ip", "link", "set", "p9", "master", "br0")
        serve_packages(client, versions)
        labs.append(Upgrading(plane, client, versions))
        plane.versions, plane.prepare = versions, labs[0].prepare
        worker = plane.hosts[TITAN] = plane.lab.host(TITAN)
        plane.lab.wire((worker, "eth0", f"{plane.address(FIRST) + 4001}/16"), (switch, "p8", ""))
        switch.run("ip", "link", "set", "p8", "master", "br0")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cluster_machines, "apply_machines", lambda *call: labs[0].apply(*call))  # noqa: PLW0108
        for _ in control_plane(tmp_path_factory.mktemp("kube"), patch, set_up, "1.35"):
            yield labs[0]


def test_the_cluster_has_the_old_version(lab: Upgrading) -> None:
    """`kube status` finds nothing wrong while the fleet file has this version."""
    assert run(["kube", "init", str(lab.plane.fleet)]) == 0
    for words in ("configmap plain", "secret generic token", "configmap probe"):
        lab.plane.kubectl(FIRST, f"create {words} --from-literal=word=parsnip")
    lab.plane.kubectl(FIRST, "create deployment web --image=web --replicas=2")
    lab.boot_worker(TITAN)
    until(lambda: versions(lab) == [OLD] * 4, 60, "kubelets report their version", every=1)

    # Machines of the laboratory have no snapshot, approver or condition.
    _, output = lab.command("kube", "status", str(lab.plane.fleet))

    assert "does not work" not in output
    assert "run `bedplate kube upgrade`" not in output
    assert OLD in output


def test_a_newer_version_in_the_fleet_file_is_reported(lab: Upgrading, capsys: pytest.CaptureFixture[str]) -> None:
    """`kube status` names the command, which shows its steps."""
    fleet = lab.plane.fleet
    fleet.write_text(fleet.read_text().replace('version: "1.35"', 'version: "1.36"'))
    assert run(["plan", str(fleet), "--write"]) == 0

    status, output = lab.command("kube", "status", str(fleet))
    assert status == 3, output
    assert f"the API server has version {OLD}, the plan 1.36.3: run `bedplate kube upgrade`" in output
    assert f"other: kubelet {OLD}; planned: kubelet 1.36.3, containerd 2.2.1" in output

    capsys.readouterr()
    assert run(["kube", "upgrade", "--check", str(fleet)]) == 0
    planned, *steps = capsys.readouterr().out.splitlines()
    assert planned == "planned: Kubernetes 1.36.3, containerd 2.2.1"
    members = [f"{name}: upgrade the member" for name in NAMES]
    worker = [f"{TITAN}: {step}" for step in ("drain", "upgrade the packages", "uncordon")]
    lines = (f"{FIRST}: take a snapshot of etcd", *members, *worker)
    assert steps == [f"{line} (Kubernetes {OLD[1:]}, containerd 2.2.1)" for line in lines]


def test_a_killed_upgrade_is_continued(lab: Upgrading, capsys: pytest.CaptureFixture[str]) -> None:
    """The second member has new packages and old pods when the command and its connection end.

    All the time changes are accepted by at least one member. The second run leaves the first member alone.
    """
    plane, command = lab.plane, ["kube", "upgrade", "--yes", str(lab.plane.fleet)]
    plane.shell(SECOND, f"touch /run/hold; echo '{_HOOK}' >/etc/apt/apt.conf.d/hook")
    with lab.probing() as probe:
        operator = multiprocessing.get_context("fork").Process(target=_in_session, args=(command,))
        operator.start()
        until(lambda: "installed" in plane.shell(SECOND, "ls /run"), 120, "the packages are installed", every=1)
        os.killpg(operator.pid or 0, signal.SIGKILL)
        operator.join()
        plane.shell(SECOND, "rm /run/hold /etc/apt/apt.conf.d/hook")
        assert [plane.server_version(name) for name in NAMES] == [NEW, OLD, OLD]
        first = plane.shell(FIRST, "stat --format %y /etc/kubernetes/manifests/etcd.yaml")

        capsys.readouterr()
        assert run(command) == 0

    steps = [line for line in capsys.readouterr().err.splitlines() if "upgrade the member" in line]
    assert steps == [f"{name}: upgrade the member" for name in (SECOND, THIRD)]
    assert plane.shell(FIRST, "stat --format %y /etc/kubernetes/manifests/etcd.yaml") == first
    assert [plane.server_version(name) for name in NAMES] == [NEW] * 3
    print(f"longest time without a successful change: {longest_gap(probe):.1f} s")  # noqa: T201  for docs/testing.md
    assert longest_gap(probe) < 15


def test_objects_and_settings_are_kept(lab: Upgrading) -> None:
    """Each object of before is there; the pods have the images of the new kubeadm, and packages are held again."""
    assert lab.plane.shell(TITAN, "apt-mark showhold").split() == ["containerd.io", "kubeadm", "kubectl", "kubelet"]
    for name in NAMES:
        objects = lab.plane.kubectl(name, "get configmaps,secrets,deployments --output name").split()
        assert {"configmap/plain", "secret/token", "deployment.apps/web"} <= {*objects}
        images = lab.plane.shell(name, "grep --no-filename image: /etc/kubernetes/manifests/*.yaml")
        listed = lab.plane.shell(name, "kubeadm config images list --kubernetes-version $(kubeadm version -o short)")
        assert {*re.findall(r"image: (\S+)", images)} <= {*listed.split()}
        assert images.count(NEW) == 3
        assert lab.plane.shell(name, "apt-mark showhold").split() == ["containerd.io", "kubeadm", "kubectl", "kubelet"]
    assert lab.plane.kubectl(FIRST, "get secret token --output jsonpath={.data.word}") == "cGFyc25pcA=="


def test_the_skew_is_gone(lab: Upgrading) -> None:
    """`kube status` has no fault; another upgrade has no step."""
    until(lambda: versions(lab) == [NEW] * 4, 60, "kubelets report their version", every=1)

    # Machines of the laboratory have no snapshot, approver or condition.
    _, output = lab.command("kube", "status", str(lab.plane.fleet))

    assert "does not work" not in output
    assert "run `bedplate kube upgrade`" not in output
    assert OLD not in output
    assert run(["kube", "upgrade", "--check", str(lab.plane.fleet)]) == 0


def test_a_worker_takes_pods_again(lab: Upgrading) -> None:
    """A run that was killed after the packages has left the worker cordoned: the next one uncordons it."""
    assert is_cordoned(lab) is False
    lab.plane.shell(FIRST, f"bedplate-member cordon {TITAN}; bedplate-member drain {TITAN}")
    assert is_cordoned(lab) is True

    assert run(["kube", "upgrade", "--yes", str(lab.plane.fleet)]) == 0

    assert is_cordoned(lab) is False


def is_cordoned(lab: Upgrading) -> bool:
    """Return whether the worker takes no pods."""
    return lab.plane.kubectl(FIRST, f"get node {TITAN} --output jsonpath={{.spec.unschedulable}}") == "true"


def versions(lab: Upgrading) -> list[str]:
    """Return the versions of the kubelets."""
    return lab.plane.kubectl(FIRST, "get nodes --output jsonpath={.items[*].status.nodeInfo.kubeletVersion}").split()


def _in_session(command: list[str]) -> None:
    """Run a command of bedplate as a process group, with which its connections end."""
    os.setsid()
    raise SystemExit(run(command))
