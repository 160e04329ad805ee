"""A control plane of three members in namespaces, from the files of the roles, and the operator's ssh to them.

The kubelet of a member is a test double: it runs the containers of the static pods as processes, with exactly their
commands and the member's files, and registers the node. systemd is one as well. All else is real: kubeadm, etcd, API
server, controller manager, scheduler, and the programs of the role.
"""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from bedplate.catalog import load_catalog
from bedplate.cli import run
from bedplate.cli.options import Terminal
from bedplate.operate import plan_of
from bedplate.plan.nodes import NodePlan, find_node
from roles.base import ManagedFile
from roles.control.role import Control
from roles.kubernetes.role import kubelet_files
from roles.tokens.role import Tokens, cluster_accounts
from tests.testlab.machines.member import MOUNTS, pack
from tests.testlab.network.netlab import Lab, LabHost, LabProgram, until
from tests.testlab.run import ROOT, need_program, need_root

NAMES = tuple(f"control-{number}.us-west-2" for number in (1, 2, 3))
COUNT = "control_plane: {type: m7i.xlarge, count: 3}"
PROGRAMS = ("etcd", "etcdctl", "etcdutl", "kubeadm", "kubectl", "kube-apiserver", "kube-controller-manager")
# The double leaves the registration to a real kubelet.
REAL_KUBELET = "/etc/bedplate/real-kubelet"
_SYSTEMCTL = """#!/bin/bash
case "$*" in
"restart bedplate-member.service") [[ ! -e /var/lib/etcd/pki/ca.key ]] || exec /usr/local/lib/bedplate/control-member ;;
"restart kubelet.service") kubelet --version >/run/kubelet ;;
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


# What a real kubelet reports of containerd, which these members do not have.
_RUNTIME = "containerd://2.2.1"


@dataclass
class ControlPlane:
    """The members: the operator's fleet file, and a folder with the volume, log and process id of each."""

    lab: Lab
    fleet: Path
    hosts: dict[str, LabHost]
    files: tuple[ManagedFile, ...] = ()
    """More files of each machine."""
    running: dict[str, LabProgram] = field(default_factory=dict)
    # The script that installs packages on a blank machine, and the folder of each version's programs.
    prepare: Callable[[str], str] = lambda _: ""
    versions: Mapping[str, Path] = field(default_factory=dict)

    def add(self, switch: LabHost, *names: str) -> None:
        """Add members of the fleet file to the network."""
        for name in names:
            host = self.hosts[name] = self.lab.host(name)
            port = f"p{len(self.hosts)}"
            self.lab.wire((host, "eth0", f"{self.node(name).address}/16"), (switch, port, ""))
            switch.run("ip", "link", "set", port, "master", "br0")

    def resize(self, count: int) -> None:
        """Write another number of members into the fleet file, and record their addresses."""
        text = self.fleet.read_text()
        self.fleet.write_text(re.sub(r"(control_plane: .*count: )\d", rf"\g<1>{count}", text))
        assert run(["plan", str(self.fleet), "--write"]) == 0

    def volume(self, name: str) -> Path:
        """Return the folder of a member's volume."""
        return self.lab.folder / name / "volume"

    @property
    def config(self) -> Path:
        """The operator's kubeconfig."""
        return self.fleet.with_name("fleet.pki") / "keys" / "admin.kubeconfig"

    def boot(self, name: str) -> None:
        """Boot a machine with an empty root disk and the member's volume."""
        node, host = self.node(name), self.hosts[name]
        assert node.cluster
        assert node.cluster.member
        tokens = Tokens(node.cluster.member.address, cluster_accounts(node.accounts)).files()
        roles = (*kubelet_files(node.cluster), *Control(node.cluster).files(), *tokens)
        files = [*roles, *doubles(node), *self.files]
        pack(host.folder / "files.tar", iter(files), Path("/nonexistent"))
        self.volume(name).mkdir(exist_ok=True)
        double = f"exec {sys.executable} -m {__name__} {node.address}"
        script = f"{MOUNTS}{self.prepare(name)}cd {ROOT}\necho $$ >{host.folder}/pid\n"
        script += "systemctl restart bedplate-member.service\n"
        script += f"[[ ! -e /etc/kubernetes/manifests ]] || systemctl restart kubelet.service\n{double}"
        versions = " ".join(f"{version}={folder}" for version, folder in self.versions.items())
        values = (
            f"VERSIONS={versions}",
            f"FILES={host.folder}/files.tar",
            f"VOLUME={self.volume(name)}",
            f"PATH={member_path()}",
        )
        # A host hides the control groups, which a real kubelet needs.
        mounts = ("nsenter", f"--mount=/proc/{os.getpid()}/ns/mnt", "unshare", "--mount")
        command = (*mounts, *_CLEAN, *values, "bash", "-c", script)
        (host.folder / "pid").unlink(missing_ok=True)
        self.running[name] = host.start(*command, log="log")
        until((host.folder / "pid").exists, 60, f"{name} boots")

    def kill(self, name: str) -> None:
        """End a machine without a shutdown."""
        self.running.pop(name).end(signal.SIGKILL)

    def shell(self, name: str, command: str) -> str:
        """Run a command on a member as root."""
        return self.hosts[name].run(*self._enter(name), "bash", "-c", command, seconds=180)

    def start(self, name: str, *command: str, log: str) -> None:
        """Start a program on a member as root; it ends with the laboratory."""
        self.hosts[name].start(*self._enter(name), *command, log=log)

    def _enter(self, name: str) -> Sequence[str]:
        pid = (self.hosts[name].folder / "pid").read_text().strip()
        return ("nsenter", "--target", pid, "--mount", "--net", "--", *_CLEAN, f"PATH={member_path()}")

    def kubectl(self, name: str, command: str) -> str:
        """Run kubectl against the API server of a member, with the operator's kubeconfig."""
        return self.shell(
            name, f"kubectl --kubeconfig {self.config} --server https://{self.node(name).address}:6443 {command}"
        )

    def address(self, name: str) -> IPv4Address:
        """Return the address of a member."""
        address = self.node(name).address
        assert address
        return address

    def server_version(self, name: str) -> str:
        """Return the version of a member's API server."""
        version: str = json.loads(self.kubectl(name, "get --raw /version"))["gitVersion"]
        return version

    def answers(self, name: str) -> bool:
        """Return whether the API server of a member is ready."""
        return '"is_ready": true' in self.shell(name, "bedplate-member status")

    def node(self, name: str) -> NodePlan:
        """Return a member in the plan of the fleet file."""
        return find_node(plan_of(Terminal(self.fleet)), name, load_catalog())

    def close(self) -> None:
        """End all members."""
        for name in [*self.running]:
            self.kill(name)


def doubles(node: NodePlan) -> Iterator[ManagedFile]:
    """Yield the names of other machines, and the doubles of systemctl and sudo."""
    hosts = "".join(f"{address} {name}\n" for name, addresses in node.hosts.items() for address in addresses)
    yield ManagedFile("", "/etc/hosts", f"127.0.0.1 localhost\n{hosts}")
    for name, text in (("systemctl", _SYSTEMCTL), ("sudo", _SUDO)):
        yield ManagedFile("", f"/usr/local/sbin/{name}", text, "755")


def member_path() -> str:
    """Return the PATH of a machine of the lab."""
    return f"/usr/local/sbin:{os.environ['PATH']}:/usr/sbin:/sbin"


def control_plane(
    folder: Path,
    patch: pytest.MonkeyPatch,
    set_up: Callable[[ControlPlane, LabHost], None] | None = None,
    version: str = "1.36",
    count: int = 3,
) -> Iterator[ControlPlane]:
    """Yield booted members without authorities, and put the operator's ssh into PATH.

    `set_up` gets the members before their boot, and the switch of their network.
    """
    fleet = folder / "fleet.yaml"
    text = (ROOT / "examples" / "lab.yaml").read_text().replace('version: "1.36"', f'version: "{version}"')
    assert COUNT in text
    fleet.write_text(text.replace(COUNT, COUNT.replace("3", str(count))))
    assert run(["plan", str(fleet), "--write"]) == 0
    with Lab("kube") as lab:
        switch = lab.host("switch")
        switch.run("ip", "link", "add", "br0", "type", "bridge")
        switch.run("ip", "link", "set", "br0", "up")
        plane = ControlPlane(lab, fleet, {})
        plane.add(switch, *NAMES[:count])
        tools = folder / "tools"
        tools.mkdir()
        (tools / "ssh").write_text(_SSH)
        (tools / "ssh").chmod(0o755)
        patch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
        patch.setenv("CONTROL_PLANE", str(lab.folder))
        if set_up:
            set_up(plane, switch)
        with booted(plane):
            yield plane


@contextmanager
def booted(plane: ControlPlane) -> Iterator[None]:
    """Boot all members, and end them."""
    need_root()
    for program in PROGRAMS:
        need_program(program)
    try:
        for name in (name for name in NAMES if name in plane.hosts):
            plane.boot(name)
        yield
    finally:
        plane.close()


# --- the double of kubelet, in the namespaces of a member ---


def _kubelet(address: str) -> None:
    """Run static pods until the end of the process."""
    manifests, registered = Path("/etc/kubernetes/manifests"), ""
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
            pods[name] = (texts[name], _start(texts[name]))
        version = Path("/run/kubelet").read_text().split()[-1:]
        if version and registered != version[0] and _register(address, version[0]):
            registered = version[0]


def _start(manifest: str) -> "subprocess.Popen[bytes]":
    """Start the program of a static pod, in the version of its image if there are several."""
    pod: Any = YAML(typ="safe").load(manifest)
    for volume in pod["spec"]["volumes"]:
        if volume["hostPath"].get("type") == "DirectoryOrCreate":
            Path(volume["hostPath"]["path"]).mkdir(parents=True, exist_ok=True)
    (container,) = pod["spec"]["containers"]
    program, *arguments = container["command"]
    versions = dict(entry.split("=") for entry in os.environ["VERSIONS"].split())
    folder = versions.get(container["image"].rpartition(":")[2], "")
    return subprocess.Popen([f"{folder}/{program}" if folder else program, *arguments])


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


def _register(address: str, version: str) -> bool:
    """Create the Node object with kubelet's certificate, and report a version; return whether it was possible.

    A real kubelet does so itself.
    """
    if Path(REAL_KUBELET).exists():
        return True
    if not Path("/etc/kubernetes/kubelet.conf").exists():
        return False
    name = next(line.split("'")[1] for line in Path("/etc/bedplate/kubelet/node.conf").read_text().splitlines())
    node = json.dumps({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
    status = json.dumps({"status": {"nodeInfo": {"kubeletVersion": version, "containerRuntimeVersion": _RUNTIME}}})
    # kubectl reads the status before, which kubelet's certificate does not permit.
    patch = ("patch", "node", name, "--subresource=status", "--type=merge", f"--patch={status}")
    calls = (("kubelet", ("apply", "--validate=false", "-f", "-")), ("super-admin", patch))
    for user, words in calls:
        server = (
            f"--kubeconfig=/etc/kubernetes/{user}.conf",
            f"--server=https://{address}:6443",
            "--request-timeout=5s",
        )
        done = subprocess.run(("kubectl", *server, *words), input=node, text=True, capture_output=True, check=False)
        if done.returncode:
            return False
    return True


if __name__ == "__main__":
    _kubelet(sys.argv[1])
