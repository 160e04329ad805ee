"""A real kubelet with containerd and runc, in a network namespace of its own, with the settings of the role.

It replaces only missing parts of the test's machine: control groups of version 2 and systemd's, and a part of memory.
Its pods run an image that is built here, without a registry.
"""

import hashlib
import io
import json
import os
import subprocess
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ruamel.yaml import YAML

from bedplate.plan.cluster import ClusterNode
from bedplate.worker.machine import KUBECONFIG
from roles.files import file_text
from roles.kubernetes.kubelet import FOLDER, PROVIDERS, kubelet_files

IMAGE = "localhost/waits:1"
PROGRAMS = ("containerd", "runc", "go", "nsenter", "ip")
# A number that differs between test runs on one machine.
_NUMBER = os.getpid() % 250
HOST, NODE = f"10.88.{_NUMBER}.1", f"10.88.{_NUMBER}.2"
_WAITS = """package main
import ("os"; "os/signal"; "syscall")
func main() { c := make(chan os.Signal, 1); signal.Notify(c, syscall.SIGINT, syscall.SIGTERM); <-c }
"""
_CONTAINERD = """version = 2
root = "{folder}/containerd"
state = "{folder}/run"
[grpc]
  address = "{folder}/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{image}"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{folder}/cni"
"""
_PODS = {
    "cniVersion": "0.4.0",
    "name": "pods",
    "type": "bridge",
    "bridge": "cni0",
    "isGateway": True,
    "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.89.0.0/24"}]], "routes": [{"dst": "0.0.0.0/0"}]},
}


@contextmanager
def namespace() -> Iterator[str]:
    """Yield a network namespace with the address NODE, which reaches HOST."""
    name, inside, outside = f"join{_NUMBER}", f"jn{_NUMBER}", f"jh{_NUMBER}"
    run = _run
    run("ip", "netns", "add", name)
    try:
        run("ip", "link", "add", outside, "type", "veth", "peer", "name", inside, "netns", name)
        run("ip", "address", "add", f"{HOST}/30", "dev", outside)
        run("ip", "link", "set", outside, "up")
        for words in (f"address add {NODE}/30 dev {inside}", f"link set {inside} up", "link set lo up"):
            run("ip", "-n", name, *words.split())
        run("ip", "-n", name, "route", "add", "default", "via", HOST)
        yield name
    finally:
        # A namespace lives as long as its last process.
        run("ip", "link", "delete", outside)
        run("ip", "netns", "delete", name)


@dataclass
class RealNode:
    """A node in a namespace; `root` has the files of the role, `folder` those of containerd and kubelet."""

    node: ClusterNode
    root: Path
    namespace: str
    folder: Path
    _processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def write_settings(self, metadata: str = "") -> None:
        """Write the files of the role and run its program, which asks the metadata service of a cloud machine."""
        for file in kubelet_files(self.node):
            path = self.root / file.path.lstrip("/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(file.text)
            path.chmod(int(file.mode, 8))
        places = {
            "ETC": f"{self.root}{FOLDER}",
            "RUN": f"{self.root}/run/bedplate",
            "PROVIDERS": f"{self.root}{PROVIDERS}",
        }
        environment = {**os.environ, **places, "AWS_EC2_METADATA_SERVICE_ENDPOINT": metadata}
        _run("bash", "-s", text=file_text("kubernetes/kubelet-settings"), environment=environment)

    def start_containerd(self) -> None:
        """Start containerd with the image."""
        (self.folder / "cni").mkdir()
        (self.folder / "cni/10-pods.conf").write_text(json.dumps(_PODS))
        (self.folder / "containerd.toml").write_text(_CONTAINERD.format(folder=self.folder, image=IMAGE))
        self._spawn("containerd", "--config", f"{self.folder}/containerd.toml")
        _write_image(self.folder)
        importing = (
            f"ctr --address {self.folder}/containerd.sock --namespace k8s.io images import {self.folder}/image.tar"
        )
        _run("timeout", "60", "sh", "-c", f"until {importing}; do sleep 1; done")

    def start_kubelet(self, programs: Path) -> None:
        """Start kubelet with the options of the role's unit."""
        settings = YAML(typ="safe").load((self.root / "run/bedplate/kubelet.yaml").read_text())
        (self.folder / "kubelet.yaml").write_text(json.dumps(self._adapted(settings)))
        words = (self.root / "run/bedplate/kubelet.env").read_text().partition("=")[2].split()
        places = (f"--root-dir={self.folder}/kubelet", f"--cert-dir={self.root}/var/lib/kubelet/pki")
        kubeconfig = f"--kubeconfig={self.root / KUBECONFIG}"
        self._spawn(
            str(programs / "kubelet"),
            f"--config={self.folder}/kubelet.yaml",
            kubeconfig,
            *places,
            *words,
            log="kubelet",
        )

    def _adapted(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        authority = f"{self.root}/etc/kubernetes/pki/ca.crt"
        authentication = {**settings["authentication"], "x509": {"clientCAFile": authority}}
        dropped = (
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
            "failCgroupV1": False,
            "failSwapOn": False,
            "makeIPTablesUtilChains": False,
            "podLogsDir": f"{self.folder}/logs",
        }

    def log(self, name: str) -> str:
        """Return the end of a program's output."""
        return (self.folder / f"{name}.log").read_text(errors="replace")[-4000:]

    def _spawn(self, *command: str, log: str = "") -> None:
        words = ("nsenter", f"--net=/run/netns/{self.namespace}", "setpriv", "--pdeathsig", "KILL", "--", *command)
        with (self.folder / f"{log or command[0]}.log").open("ab") as stream:
            self._processes.append(subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=stream, stderr=stream))

    def stop(self) -> None:
        """End kubelet, the containers, then containerd, and unmount their leftovers."""
        socket = f"{self.folder}/containerd.sock"
        for process in reversed(self._processes[1:]):
            process.kill()
            process.wait()
        ctr = f"ctr --address {socket} --namespace k8s.io tasks"
        remove = f"for task in $({ctr} list --quiet); do {ctr} remove --force $task; done || true"
        _run("timeout", "60", "sh", "-c", remove)
        for process in self._processes[:1]:
            process.kill()
            process.wait()
        mounts = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
        for mount in sorted((path for path in mounts if path.startswith(str(self.folder))), reverse=True):
            _run("umount", "--lazy", mount)


@contextmanager
def real_node(node: ClusterNode, root: Path) -> Iterator[RealNode]:
    """Yield a node whose programs have not started yet."""
    # Sockets have short paths, and overlayfs needs a file system other than overlayfs.
    with TemporaryDirectory(prefix="bp-", dir="/dev/shm") as folder, namespace() as name:
        machine = RealNode(node, root, name, Path(folder))
        try:
            yield machine
        finally:
            machine.stop()


def _write_image(folder: Path) -> None:
    """Write an archive with an image of one static program that waits for its end."""
    (folder / "waits.go").write_text(_WAITS)
    build = ("go", "build", "-ldflags=-s -w", "-o", str(folder / "waits"), str(folder / "waits.go"))
    _run(*build, environment={**os.environ, "CGO_ENABLED": "0"})
    layer = _tar({"app": (folder / "waits").read_bytes()})
    digest = hashlib.sha256(layer).hexdigest()
    start = {"Entrypoint": ["/app"], "User": "65535:65535"}
    layers = {"type": "layers", "diff_ids": [f"sha256:{digest}"]}
    config = json.dumps({"architecture": "amd64", "os": "linux", "config": start, "rootfs": layers}).encode()
    name = f"{hashlib.sha256(config).hexdigest()}.json"
    manifest = json.dumps([{"Config": name, "RepoTags": [IMAGE], "Layers": ["layer.tar"]}]).encode()
    (folder / "image.tar").write_bytes(_tar({name: config, "layer.tar": layer, "manifest.json": manifest}))


def _tar(files: Mapping[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(data), 0o755
            archive.addfile(entry, io.BytesIO(data))
    return stream.getvalue()


def _run(*command: str, text: str = "", environment: Mapping[str, str] | None = None) -> str:
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"
    return done.stdout


def pod(name: str, tolerated: Sequence[str] = (), labels: Mapping[str, str] | None = None) -> str:
    """Return a pod of the image that tolerates some taints."""
    container = {"name": "app", "image": IMAGE, "imagePullPolicy": "Never"}
    tolerations = [{"key": key, "operator": "Exists"} for key in tolerated]
    spec = {
        "containers": [container],
        "tolerations": tolerations,
        "terminationGracePeriodSeconds": 5,
        "dnsPolicy": "Default",
    }
    metadata = {"name": name, "labels": dict(labels or {})}
    return json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
