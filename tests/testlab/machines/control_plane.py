"""A control plane of three members in namespaces, from the files of the roles, and the operator's ssh to them.

The kubelet of a member is a test double: it runs the containers of the static pods as processes, with exactly their
commands and the member's files, and registers the node. systemd is one as well. All else is real: kubeadm, etcd, API
server, controller manager, scheduler, and the programs of the role.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from bedplate.catalog import load_catalog
from bedplate.cli import run
from bedplate.cli.fleet import plan_of
from bedplate.plan.nodes import NodePlan, find_node
from roles.base import ManagedFile
from roles.control.role import control_files
from roles.kubernetes.role import kubelet_files
from tests.testlab.machines.member import MOUNTS, pack
from tests.testlab.network.netlab import Lab, LabHost, LabProgram, until
from tests.testlab.run import ROOT, need_program, need_root

NAMES = tuple(f"control-{number}.us-west-2" for number in (1, 2, 3))
PROGRAMS = ("etcd", "etcdctl", "etcdutl", "kubeadm", "kubectl", "kube-apiserver", "kube-controller-manager")
_SYSTEMCTL = """#!/bin/bash
case "$*" in
"restart bedplate-member.service") [[ ! -e /var/lib/etcd/pki/ca.key ]] || exec /usr/local/lib/bedplate/control-member ;;
"restart kubelet.service") touch /run/kubelet ;;
"start bedplate-etcd-snapshot.service") exec /usr/local/lib/bedplate/etcd-snapshot ;;
*) echo "unknown: $*" >&2; exit 1 ;;
esac
"""
_SUDO = """#!/bin/bash
[[ $1 != -n ]] || shift
exec "$@"
"""
_SSH = """#!/bin/bash
# The command of ssh to a member that runs.
host=${@: -2:1} command=${@: -1}
pid=$(cat "$CONTROL_PLANE/$host/pid" 2>/dev/null) && kill -0 "$pid" 2>/dev/null || {
  echo "ssh: connect to host $host port 22: Connection timed out" >&2
  exit 255
}
place=(nsenter --target "$pid" --mount --net --)
exec "${place[@]}" env --ignore-environment HOME=/run PATH="/usr/local/sbin:$PATH" bash -c "$command"
"""
# Tests run with a proxy that refuses connections, which kubeadm would write into the static pods.
_CLEAN = ("env", "--ignore-environment", "HOME=/run")


@dataclass
class ControlPlane:
    """The members: the operator's fleet file, and a folder with the volume, log and process id of each."""

    lab: Lab
    fleet: Path
    hosts: dict[str, LabHost]
    running: dict[str, LabProgram] = field(default_factory=dict)

    def volume(self, name: str) -> Path:
        """Return the folder of a member's volume."""
        return self.lab.folder / name / "volume"

    @property
    def config(self) -> Path:
        """The operator's kubeconfig."""
        return self.fleet.with_name("fleet.pki") / "keys" / "admin.kubeconfig"

    def boot(self, name: str) -> None:
        """Boot a machine with an empty root disk and the member's volume."""
        node, host = self._node(name), self.hosts[name]
        assert node.cluster
        files = [*kubelet_files(node.cluster), *control_files(node.cluster), *_doubles(node)]
        pack(host.folder / "files.tar", iter(files), Path("/nonexistent"))
        self.volume(name).mkdir(exist_ok=True)
        double = f"exec {sys.executable} -m {__name__} {node.address}"
        script = f"{MOUNTS}cd {ROOT}\necho $$ >{host.folder}/pid\nsystemctl restart bedplate-member.service\n"
        script += f"[[ ! -e /etc/kubernetes/manifests ]] || touch /run/kubelet\n{double}"
        values = (f"FILES={host.folder}/files.tar", f"VOLUME={self.volume(name)}", f"PATH={_path()}")
        command = ("unshare", "--mount", *_CLEAN, *values, "bash", "-c", script)
        (host.folder / "pid").unlink(missing_ok=True)
        self.running[name] = host.start(*command, log="log")
        until((host.folder / "pid").exists, 20, f"{name} boots")

    def kill(self, name: str) -> None:
        """End a machine without a shutdown."""
        self.running.pop(name).end(signal.SIGKILL)

    def shell(self, name: str, command: str) -> str:
        """Run a command on a member as root."""
        pid = (self.hosts[name].folder / "pid").read_text().strip()
        place = ("nsenter", "--target", pid, "--mount", "--net", "--")
        return self.hosts[name].run(*place, *_CLEAN, f"PATH={_path()}", "bash", "-c", command, seconds=180)

    def kubectl(self, name: str, command: str) -> str:
        """Run kubectl against the API server of a member, with the operator's kubeconfig."""
        return self.shell(
            name, f"kubectl --kubeconfig {self.config} --server https://{self._node(name).address}:6443 {command}"
        )

    def answers(self, name: str) -> bool:
        """Return whether the API server of a member is ready."""
        return '"is_ready": true' in self.shell(name, "bedplate-member status")

    def _node(self, name: str) -> NodePlan:
        return find_node(plan_of(self.fleet), name, load_catalog())

    def close(self) -> None:
        """End all members."""
        for name in [*self.running]:
            self.kill(name)


def _doubles(node: NodePlan) -> Iterator[ManagedFile]:
    hosts = "".join(f"{address} {name}\n" for name, addresses in node.hosts.items() for address in addresses)
    yield ManagedFile("", "/etc/hosts", f"127.0.0.1 localhost\n{hosts}")
    for name, text in (("systemctl", _SYSTEMCTL), ("sudo", _SUDO)):
        yield ManagedFile("", f"/usr/local/sbin/{name}", text, "755")


def _path() -> str:
    return f"/usr/local/sbin:{os.environ['PATH']}:/usr/sbin:/sbin"


def control_plane(folder: Path, patch: pytest.MonkeyPatch) -> Iterator[ControlPlane]:
    """Yield three booted members without authorities, and put the operator's ssh into PATH."""
    need_root()
    for program in PROGRAMS:
        need_program(program)
    fleet = folder / "fleet.yaml"
    fleet.write_text((ROOT / "examples" / "lab.yaml").read_text())
    assert run(["plan", str(fleet), "--write"]) == 0
    with Lab("kube") as lab:
        switch = lab.host("switch")
        switch.run("ip", "link", "add", "br0", "type", "bridge")
        switch.run("ip", "link", "set", "br0", "up")
        plane = ControlPlane(lab, fleet, {name: lab.host(name) for name in NAMES})
        for number, (name, host) in enumerate(plane.hosts.items()):
            address = find_node(plan_of(fleet), name, load_catalog()).address
            lab.wire((host, "eth0", f"{address}/16"), (switch, f"p{number}", ""))
            switch.run("ip", "link", "set", f"p{number}", "master", "br0")
        tools = folder / "tools"
        tools.mkdir()
        (tools / "ssh").write_text(_SSH)
        (tools / "ssh").chmod(0o755)
        patch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
        patch.setenv("CONTROL_PLANE", str(lab.folder))
        try:
            for name in NAMES:
                plane.boot(name)
            yield plane
        finally:
            plane.close()


# --- the double of kubelet, in the namespaces of a member ---


def _kubelet(address: str) -> None:
    """Run static pods until the end of the process."""
    manifests, is_registered = Path("/etc/kubernetes/manifests"), False
    pods: dict[str, tuple[str, subprocess.Popen[bytes]]] = {}
    while True:
        time.sleep(0.5)
        if not Path("/run/kubelet").exists():
            continue
        texts = {file.stem: file.read_text() for file in manifests.glob("*.yaml")}
        ended = [
            name for name, (text, process) in pods.items() if texts.get(name) != text or process.poll() is not None
        ]
        _end([pods.pop(name)[1] for name in ended])
        for name in texts.keys() - pods.keys():
            pod: Any = YAML(typ="safe").load(texts[name])
            for volume in pod["spec"]["volumes"]:
                if volume["hostPath"].get("type") == "DirectoryOrCreate":
                    Path(volume["hostPath"]["path"]).mkdir(parents=True, exist_ok=True)
            pods[name] = (texts[name], subprocess.Popen(pod["spec"]["containers"][0]["command"]))
        is_registered = is_registered or _register(address)


def _end(processes: list[subprocess.Popen[bytes]]) -> None:
    """End processes as kubelet does: after 30 seconds they are killed."""
    for process in processes:
        process.terminate()
    deadline = time.monotonic() + 30
    for process in processes:
        try:
            process.wait(max(0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _register(address: str) -> bool:
    """Create the Node object with kubelet's certificate; return whether it exists."""
    if not Path("/etc/kubernetes/kubelet.conf").exists():
        return False
    name = next(line.split("'")[1] for line in Path("/etc/bedplate/kubelet/node.conf").read_text().splitlines())
    node = json.dumps({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
    server = ("--kubeconfig", "/etc/kubernetes/kubelet.conf", "--server", f"https://{address}:6443")
    command = ("kubectl", *server, "--request-timeout=5s", "apply", "--validate=false", "-f", "-")
    return subprocess.run(command, input=node, text=True, capture_output=True, check=False).returncode == 0


if __name__ == "__main__":
    _kubelet(sys.argv[1])
