"""Two real kubelets of a group with two GPUs each, for runs of several nodes, and a laptop.

Their pods have the network of flannel, kube-proxy and CoreDNS. The homes are one folder on both nodes, as on a file
server, with Debian's PyTorch below it. The hub is a stand-in; GPUs are those of a fake device plugin.
"""

import json
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from platform import machine
from tempfile import TemporaryDirectory

from bedplate.kubernetes.addons import ADDON_LABEL
from bedplate.plan.cluster import cluster_plan
from bedplate.programs.bp.jobset import Cluster
from tests.testlab.fleets.variants import lab_plan
from tests.testlab.kubernetes.control_plane import Api, ControlPlane
from tests.testlab.kubernetes.images import PYTHON_IMAGE, addon_images, python_image
from tests.testlab.kubernetes.joined_node import Running, cluster, pool_case
from tests.testlab.kubernetes.joined_node import machine as joining
from tests.testlab.kubernetes.queues import Queues, queue_folder
from tests.testlab.kubernetes.real_node import HOST, NODE, OTHER
from tests.testlab.kubernetes.upstream import MIRROR, runnable_objects
from tests.testlab.machines.layers import with_pytorch
from tests.testlab.run import lack

PERSON, GPUS = "grace", 2
_NETWORK = {"flannel", "kube-proxy", "coredns"}
_TYPE, _INSTANCES = "g6e.12xlarge", {NODE: "i-00000000a", OTHER: "i-00000000b"}
_CASES = {address: pool_case(_TYPE, instance) for address, instance in _INSTANCES.items()}
GROUP = _CASES[NODE].promised.labels["bedplate/group"]
_LIB, _PARTS = f"/home/{PERSON}/usr/lib", ("", *(f"/{machine()}-linux-gnu{end}" for end in ("", "/blas", "/lapack")))
_VARIABLES = {
    "LD_LIBRARY_PATH": ":".join(f"{_LIB}{part}" for part in _PARTS),
    "PYTHONPATH": f"{_LIB}/python3/dist-packages",
    # Four ranks on two cores would compile the modules for many seconds.
    "PYTHONDONTWRITEBYTECODE": "",
    "PYTHONPYCACHEPREFIX": f"/home/{PERSON}/.pyc",
}


@dataclass
class GangNodes:
    """The nodes."""

    nodes: Sequence[Running]

    @property
    def plane(self) -> Api:
        """The control plane."""
        return self.nodes[0].approvers.plane

    def agent(self, node: int) -> int:
        """Return the agent of a run on a node, the first process of its container; 0 without one."""
        return next((pid for pid, words in self._processes(node) if b"/run/bedplate/run/agent" in words), 0)

    def ranks(self, node: int) -> Sequence[int]:
        """Return the processes of the program of a run on a node."""
        return [pid for pid, words in self._processes(node) if words[1:2] == [b"train.py"]]

    def shim(self, node: int) -> int:
        """Return the process of containerd that holds the container of a run on a node; 0 without one."""
        with suppress(OSError):
            return int(Path(f"/proc/{self.agent(node)}/stat").read_text().rpartition(")")[2].split()[1])
        return 0

    def delete_pod(self, node: int, *options: str) -> bool:
        """Delete the pod of a run on a node; return whether there was one."""
        of_node = f"--field-selector=status.phase=Running,spec.nodeName={self.nodes[node].case.name}"
        where, plane = f"--namespace={PERSON}", self.nodes[node].approvers.plane
        names = plane.kubectl("get", "pods", where, of_node, "--output=name").split()
        return bool(names) and not plane.try_kubectl("delete", where, "--wait=false", *options, *names).returncode

    def _processes(self, node: int) -> Iterator[tuple[int, list[bytes]]]:
        """Yield number and words of each process in a container of a node."""
        group = self.nodes[node].machine.folder.name
        for path in Path("/proc").glob("[0-9]*"):
            try:
                if f"/{group}/" in (path / "cgroup").read_text():
                    yield int(path.name), (path / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue


def kill(process: int) -> bool:
    """Kill a process; return whether it was there: 0 would be the process group of a test."""
    with suppress(ProcessLookupError):
        if process:
            os.kill(process, signal.SIGKILL)
            return True
    return False


@contextmanager
def gang_nodes(folder: Path) -> Iterator[GangNodes]:
    """Yield the nodes, which have joined and passed their gates, in a cluster with the fleet's policies and queue."""
    if not MIRROR.exists():
        lack("needs upstream's manifests: `python -m tests.testlab.kubernetes` fetches them")
    with ExitStack() as stack:
        home = stack.enter_context(_home())
        approvers = stack.enter_context(cluster())
        plane, planned = approvers.plane, cluster_plan(lab_plan())
        assert isinstance(plane, ControlPlane)
        assert planned
        plan = replace(planned, api=HOST)
        stack.enter_context(Queues(plane, queue_folder(), more={"pod-defaults", "volumes"}))
        # `apply_objects` would delete what it applied before.
        network = [
            item for item in runnable_objects(lab_plan(), plan) if item["metadata"]["labels"][ADDON_LABEL] in _NETWORK
        ]
        items = json.dumps({"apiVersion": "v1", "kind": "List", "items": network})
        plane.kubectl("apply", "--server-side", "-f", "-", text=items)
        # There is no node without GPUs here.
        patch = {"spec": {"template": {"spec": {"tolerations": [{"operator": "Exists"}]}}}}
        plane.kubectl("patch", "deployment", "coredns", "-n", "kube-system", f"--patch={json.dumps(patch)}")
        images = [*addon_images(plane.programs, plan, folder), python_image(folder, _VARIABLES)]
        nodes = [
            stack.enter_context(joining(approvers, case, folder / address, address, images))
            for address, case in _CASES.items()
        ]
        for node in nodes:
            node.machine.shell(f"mkdir -p /home/{PERSON} /data; mount --bind {home} /home/{PERSON}")
            node.join()
            node.pass_gate()
            node.machine.spawn(f"{plane.programs}/fake-gpus", str(GPUS))
        plane.wait_for_namespace(PERSON)
        yield GangNodes(nodes)


@contextmanager
def _home() -> Iterator[Path]:
    """Yield the person's home: a folder above one with PyTorch."""
    uid = lab_plan().accounts.uids[PERSON]
    with TemporaryDirectory(prefix="bp-", dir="/dev/shm") as folder:
        upper, work, home = (Path(folder, name) for name in ("upper", "work", "home"))
        for path in (upper, work, home):
            path.mkdir()
        layers = f"lowerdir={':'.join(map(str, with_pytorch()))},upperdir={upper},workdir={work}"
        subprocess.run(("mount", "-t", "overlay", "-o", layers, "overlay", home), check=True)
        try:
            os.chown(home, uid, uid)
            yield home
        finally:
            subprocess.run(("umount", home), check=True)


def as_person(plane: Api) -> Cluster:
    """Return how the person reaches the cluster."""
    token = plane.kubectl("create", "token", PERSON, "-n", "people", "--duration", "12h").strip()
    script, uid = f"echo '{json.dumps({'status': {'token': token}})}'", lab_plan().accounts.uids[PERSON]
    return Cluster(plane.server, plane.authority.certificate.read_text(), PERSON, uid, [uid], script)


def facts_of_group() -> Mapping[str, object]:
    """Return what `fleet.json` has of the group; its machines have less processors than a real one."""
    taints = _CASES[NODE].promised.taints
    return {"image": PYTHON_IMAGE, "gpus": GPUS, "taints": taints, "cpus": 1, "memory_gib": 4.0}
