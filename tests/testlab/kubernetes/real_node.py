"""A real kubelet with containerd and runc, in namespaces of network and mounts, with the settings of the role.

It replaces only missing parts of the test's machine: control groups of version 2 and systemd's, and a part of memory.
Its pods run images that are built here, without a registry.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ruamel.yaml import YAML

from bedplate.plan.cluster import ClusterNode
from bedplate.programs.worker.machine import KUBECONFIG
from roles.base import ManagedFile, file_text
from roles.kubernetes.role import FOLDER, PROVIDERS, kubelet_files
from tests.testlab.kubernetes.binaries import CONTAINERD, find_extra, find_programs
from tests.testlab.kubernetes.images import IMAGE
from tests.testlab.run import lack

PROGRAMS = ("runc", "busybox", "nsenter", "ip", "nft", "iptables")
PLUGINS = Path("/usr/lib/cni")
# A number that differs between test runs on one machine.
_NUMBER = os.getpid() % 250
HOST, NODE, OTHER = (f"10.88.{_NUMBER}.{end}" for end in (1, 2, 3))
_BRIDGE = f"jh{_NUMBER}"
# The agent waits two minutes for the approver.
_SECONDS = 180
_DIES = ("setpriv", "--pdeathsig", "KILL", "--")
# Two nodes share the machine's files: each has its own changes of these folders.
_OWN = ("etc", "home", "opt", "run", "usr/local", "var/lib")
_CONTAINERD = """version = 2
root = "{folder}/containerd"
state = "{folder}/run"
[grpc]
  address = "{folder}/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{image}"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".registry]
    config_path = "/etc/containerd/certs.d"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/opt/cni/bin"
    conf_dir = "/etc/cni/net.d"
"""
PODS: Mapping[str, Any] = {
    "cniVersion": "0.4.0",
    "name": "pods",
    "type": "bridge",
    "bridge": "cni0",
    "isGateway": True,
    "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.89.0.0/24"}]], "routes": [{"dst": "0.0.0.0/0"}]},
}


def need_real_nodes(*more: str) -> Path:
    """Return the folder of Kubernetes' programs; skip the test without what real kubelets need, or other programs."""
    programs, needed = find_programs(), (*PROGRAMS, *more)
    has_tools = PLUGINS.exists() and all(map(shutil.which, needed)) and not os.geteuid()
    if not (programs and has_tools and find_extra(CONTAINERD)):
        lack(f"needs root, the programs of Kubernetes, containerd, {', '.join(needed)}, and Debian's CNI plugins")
    return programs


@contextmanager
def segment() -> Iterator[None]:
    """Create the network of the nodes, in which this machine has the address HOST."""
    _run("ip", "link", "add", _BRIDGE, "type", "bridge")
    try:
        _run("ip", "address", "add", f"{HOST}/24", "dev", _BRIDGE)
        _run("ip", "link", "set", _BRIDGE, "up")
        yield
    finally:
        _run("ip", "link", "delete", _BRIDGE)


@contextmanager
def namespace(address: str) -> Iterator[str]:
    """Yield a network namespace with an address of the segment."""
    number = address.rpartition(".")[2]
    name, inside, outside = f"join{_NUMBER}-{number}", f"jn{_NUMBER}-{number}", f"jo{_NUMBER}-{number}"
    _run("ip", "netns", "add", name)
    try:
        _run("ip", "link", "add", outside, "type", "veth", "peer", "name", inside, "netns", name)
        _run("ip", "link", "set", outside, "master", _BRIDGE, "up")
        for words in (f"address add {address}/24 dev {inside}", f"link set {inside} up", "link set lo up"):
            _run("ip", "-n", name, *words.split())
        _run("ip", "-n", name, "route", "add", "default", "via", HOST)
        yield name
    finally:
        # A namespace lives as long as its last process.
        _run("ip", "link", "delete", outside)
        _run("ip", "netns", "delete", name)


@dataclass
class RealNode:
    """A node in its namespaces; `root` has the files of the role, `folder` those of containerd and kubelet.

    If `root` is the folder of changes, the node sees the files where the role writes them.
    """

    node: ClusterNode
    root: Path
    address: str
    namespace: str
    folder: Path
    member: int = 0
    """The process of a machine whose files it has, instead of its own changes."""
    _processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def write_settings(self, metadata: str = "") -> None:
        """Write the files of the role and run its program, which asks the metadata service of a cloud machine."""
        self.write_files(kubelet_files(self.node))
        places = {
            "ETC": f"{self.root}{FOLDER}",
            "RUN": f"{self.root}/run/bedplate",
            "PROVIDERS": f"{self.root}{PROVIDERS}",
        }
        environment = {**os.environ, **places, "AWS_EC2_METADATA_SERVICE_ENDPOINT": metadata}
        _run("bash", "-s", text=file_text("kubernetes/kubelet-settings"), environment=environment)

    def write_files(self, files: Iterable[ManagedFile]) -> None:
        """Write files of roles."""
        for file in files:
            path = self.root / file.path.lstrip("/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(file.text)
            path.chmod(int(file.mode, 8))

    def start_containerd(self, images: Sequence[Path], network: Mapping[str, Any] | None) -> None:
        """Start containerd with images; without a network, an add-on must set it up before pods run."""
        for name in ("etc/cni/net.d", "home", "opt/cni/bin", "run", "usr/local", "var/lib/kubelet"):
            (self.changes / name).mkdir(parents=True, exist_ok=True)
        for plugin in PLUGINS.iterdir():
            shutil.copy(plugin, self.changes / "opt/cni/bin")
        if network:
            (self.changes / "etc/cni/net.d/10-pods.conf").write_text(json.dumps(network))
        (self.folder / "containerd.toml").write_text(_CONTAINERD.format(folder=self.folder, image=IMAGE))
        self._hold_mounts()
        self.spawn("containerd", "--config", f"{self.folder}/containerd.toml")
        for image in images:
            self.import_image(image)

    def import_image(self, archive: Path) -> None:
        """Give containerd an image of an archive."""
        self._ctr(f"until ctr images import {archive}; do sleep 1; done")

    @property
    def changes(self) -> Path:
        """The node's own files, by their paths."""
        return Path(f"/proc/{self.member}/root") if self.member else self.folder / "changes"

    def _hold_mounts(self) -> None:
        """Start a process that keeps the namespace of mounts, in which the node's own files are above the machine's."""
        lines = ["set -e"]
        for name in () if self.member else _OWN:
            (self.folder / "work" / name).mkdir(parents=True)
            layers = f"lowerdir=/{name},upperdir={self.changes}/{name},workdir={self.folder}/work/{name}"
            lines.append(f"mount -t overlay -o {layers} overlay /{name}")
        script = "\n".join([*lines, f"touch {self.folder}/mounted", "exec sleep infinity"])
        place = ("nsenter", f"--mount=/proc/{self.member}/ns/mnt") if self.member else ("unshare", "--mount")
        self._start("mounts", *place, *_DIES, "sh", "-c", script)
        _run("timeout", "10", "sh", "-c", f"until test -e {self.folder}/mounted; do sleep 0.1; done")

    def start_kubelet(self, programs: Path, *options: str) -> None:
        """Start kubelet with the options of the role's unit, and more, once its kubeconfig exists."""
        settings = YAML(typ="safe").load((self.root / "run/bedplate/kubelet.yaml").read_text())
        (self.folder / "kubelet.yaml").write_text(json.dumps(self._adapted(settings)))
        words = (self.root / "run/bedplate/kubelet.env").read_text().partition("=")[2].split()
        places = (f"--root-dir={self.folder}/kubelet", f"--cert-dir={self.root}/var/lib/kubelet/pki")
        files = (f"--config={self.folder}/kubelet.yaml", f"--kubeconfig={self.root / KUBECONFIG}")
        for group in self._control_groups():
            group.mkdir(exist_ok=True)
            for name in ("cpuset.mems", "cpuset.cpus"):
                if (group / name).exists():
                    (group / name).write_text((group.parent / name).read_text())
        command = (str(programs / "kubelet"), *files, *places, *words, *options)
        waits = 'until test -s "$0"; do sleep 0.2; done; exec "$@"'
        self._start("kubelet", *self._enter(), *_DIES, "sh", "-c", waits, str(self.root / KUBECONFIG), *command)

    @contextmanager
    def cut(self) -> Iterator[None]:
        """Cut the node off from all others."""
        link = f"jo{_NUMBER}-{self.address.rpartition('.')[2]}"
        _run("ip", "link", "set", link, "down")
        try:
            yield
        finally:
            _run("ip", "link", "set", link, "up")

    def restart_kubelet(self, programs: Path) -> None:
        """Restart kubelet, the last program that was started; its containers run on."""
        self._kill([self._processes.pop()])
        self.start_kubelet(programs)

    def _adapted(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        authority = f"{self.root}{settings['authentication']['x509']['clientCAFile']}"
        authentication = {**settings["authentication"], "x509": {"clientCAFile": authority}}
        dropped = (
            # The double of kubelet runs the static pods of a member.
            "staticPodPath",
            "cpuManagerPolicy",
            "topologyManagerPolicy",
            "shutdownGracePeriod",
            "shutdownGracePeriodCriticalPods",
        )
        return {
            **{key: value for key, value in settings.items() if key not in dropped},
            "authentication": authentication,
            "containerRuntimeEndpoint": f"unix://{self.folder}/containerd.sock",
            "cgroupDriver": "cgroupfs",
            # Two kubelets on one machine would delete the groups of each other's pods.
            "cgroupRoot": f"/{self.folder.name}",
            # NodeLocal DNS cannot be built from the Go module proxy: pods ask CoreDNS.
            "clusterDNS": [str(self.node.cluster.dns)],
            "failCgroupV1": False,
            "failSwapOn": False,
            "makeIPTablesUtilChains": False,
            "podLogsDir": f"{self.folder}/logs",
        }

    def _control_groups(self) -> list[Path]:
        """Return the node's control group in each hierarchy."""
        return [file.parent / self.folder.name for file in Path("/sys/fs/cgroup").glob("*/cgroup.procs")]

    def log(self, name: str) -> str:
        """Return the end of a program's output."""
        return (self.folder / f"{name}.log").read_text(errors="replace")[-4000:]

    def spawn(self, program: str, *arguments: str) -> None:
        """Start a program on the node; it ends with the node."""
        self._start(Path(program).name, *self._enter(), *_DIES, program, *arguments)

    def shell(self, script: str) -> str:
        """Return the output of a shell script on the node."""
        return _run(*self._enter(), "sh", "-c", script)

    def _enter(self) -> Sequence[str]:
        return ("nsenter", f"--net=/run/netns/{self.namespace}", f"--mount=/proc/{self._processes[0].pid}/ns/mnt", "--")

    def _start(self, log: str, *command: str) -> None:
        with (self.folder / f"{log}.log").open("ab") as stream:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=stream, stderr=stream, env=_with_containerd()
            )
        self._processes.append(process)

    def _ctr(self, script: str) -> None:
        """Run a shell script in which `ctr` asks the node's containerd."""
        asking = f'ctr() {{ command ctr --address {self.folder}/containerd.sock --namespace k8s.io "$@"; }}'
        _run("timeout", "60", "sh", "-c", f"{asking}\n{script}", environment=_with_containerd())

    def stop(self) -> None:
        """End kubelet, the containers, then containerd, and last the namespace with all mounts."""
        self._kill(self._processes[2:])
        if len(self._processes) > 1:
            self._ctr("for task in $(ctr tasks list --quiet); do ctr tasks remove --force $task; done || true")
        self._kill(self._processes)
        self._processes.clear()
        for group in self._control_groups():
            for folder in sorted(group.glob("**/"), reverse=True):
                folder.rmdir()

    @staticmethod
    def _kill(processes: Sequence[subprocess.Popen[bytes]]) -> None:
        for process in reversed(processes):
            process.kill()
            process.wait()


@contextmanager
def real_node(
    node: ClusterNode, root: Path | None, address: str = NODE, network: str = "", member: int = 0
) -> Iterator[RealNode]:
    """Yield a node, of the segment or in another network namespace, whose programs have not started yet.

    Without a root it has the files of roles where they write them.
    """
    place = nullcontext(network) if network else namespace(address)
    # Sockets have short paths, and overlayfs needs a file system other than overlayfs.
    with TemporaryDirectory(prefix="bp-", dir="/dev/shm") as folder, place as name:
        machine = RealNode(node, root or Path(), address, name, Path(folder), member)
        machine.root = root or machine.changes
        try:
            yield machine
        finally:
            machine.stop()


def _with_containerd() -> Mapping[str, str]:
    """Return the environment of programs, which find containerd before that of the test's machine."""
    return {**os.environ, "PATH": f"{find_extra(CONTAINERD)}:{os.environ['PATH']}"}


def _run(*command: str, text: str = "", environment: Mapping[str, str] | None = None) -> str:
    done = subprocess.run(
        command, input=text, capture_output=True, text=True, check=False, env=environment, timeout=_SECONDS
    )
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"
    return done.stdout


def pod(
    name: str,
    tolerated: Sequence[str] = (),
    labels: Mapping[str, str] | None = None,
    spec: Mapping[str, Any] | None = None,
    **container: Any,  # noqa: ANN401
) -> str:
    """Return a pod of the image that tolerates some taints, with more of its spec and of its container."""
    containers = [{"name": "app", "image": IMAGE, "imagePullPolicy": "Never", **container}]
    tolerations = [{"key": key, "operator": "Exists"} for key in tolerated]
    common = {"containers": containers, "tolerations": tolerations, "terminationGracePeriodSeconds": 5}
    metadata = {"name": name, "labels": dict(labels or {})}
    return json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {**common, **(spec or {})}})
