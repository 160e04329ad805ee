"""An upgrade of the control plane: apt's repository of two minor versions, the apply of roles, and a client of the API.

apt, dpkg, holds and pins are real; a package holds links to the programs of its version. The repository is at its own
name and address of the role, without a signature. An apply writes the files of the roles without pyinfra.
"""

import hashlib
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

from bedplate.catalog import load_catalog
from bedplate.cli.options import Terminal
from bedplate.nodes.ssh import NodeLocation
from bedplate.operate import plan_of
from bedplate.plan import FleetPlan
from bedplate.plan.cluster import ClusterNode, cluster_plan
from bedplate.plan.nodes import find_node
from roles.base import ManagedFile
from roles.containers.role import PACKAGE as CONTAINERD
from roles.control.role import Control
from roles.kubernetes.role import PACKAGES as KUBERNETES
from roles.kubernetes.role import Kubernetes, kubelet_files, repository
from tests.testlab.machines.control_plane import NAMES, ControlPlane, doubles, member_path
from tests.testlab.machines.member import MOUNTS, pack
from tests.testlab.network.netlab import LabHost, LabProgram, until
from tests.testlab.run import ROOT

# The same repository serves containerd, without a program: nothing here runs it.
PACKAGES, RUNTIME = (*KUBERNETES, CONTAINERD), "2.2.1"
_PIN = f"Package: {CONTAINERD}\nPin: version {RUNTIME}-*\nPin-Priority: 990\n"
_HOST, NOTHING = "pkgs.k8s.io", Path("/nonexistent")
_APT = f"""Acquire::https::{_HOST}::Verify-Peer "false";
Acquire::https::{_HOST}::Verify-Host "false";
Acquire::AllowInsecureRepositories "true";
APT::Get::AllowUnauthenticated "true";
APT::Sandbox::User "root";
Dir::Cache "/run/apt";
"""
# The first installation, as the role does it. This machine may have packages of these names: dpkg forgets them.
_INSTALL = f"""mkdir -p /run/apt/archives/partial
rm -rf /etc/apt/sources.list /etc/apt/sources.list.d /etc/apt/preferences.d /etc/apt/apt.conf.d
tar --extract --directory=/ --file="$FILES"
>/var/lib/dpkg/status
rm -rf /var/lib/dpkg/info/*
export DEBIAN_FRONTEND=noninteractive
apt-get -qq update
apt-get -qq -y install {" ".join(PACKAGES)}
apt-mark hold {" ".join(PACKAGES)}
"""
_HEARTBEAT = """set +e
while sleep 2; do
  version=$(sed 's/.* //' /run/kubelet) now=$(date -u +%FT%TZ)
  ready="{\\"type\\": \\"Ready\\", \\"status\\": \\"True\\", \\"lastHeartbeatTime\\": \\"$now\\"}"
  info="{\\"kubeletVersion\\": \\"$version\\", \\"containerRuntimeVersion\\": \\"containerd://2.2.1\\"}"
  status="{\\"nodeInfo\\": $info, \\"conditions\\": [$ready]}"
  $KUBECTL patch node "$NODE" --subresource=status --type=merge --patch="{\\"status\\": $status}"
done
"""
# Changes an object each 0.1 s through any member that answers, and prints when it has succeeded.
_PROBE = """
import http.client, json, ssl, sys, time
authority, certificate, *members = sys.argv[1:]
context = ssl.create_default_context(cafile=authority)
context.load_cert_chain(certificate)
path, number = "/api/v1/namespaces/default/configmaps/probe", 0
while True:
    for member in (*members,):
        number += 1
        connection = http.client.HTTPSConnection(member, 6443, timeout=2, context=context)
        try:
            body = json.dumps({"data": {"number": str(number)}})
            connection.request("PATCH", path, body, {"Content-Type": "application/merge-patch+json"})
            if connection.getresponse().status == 200:
                print(time.monotonic(), flush=True)
                break
        except OSError:
            pass
        finally:
            connection.close()
        members.append(members.pop(0))
    time.sleep(0.1)
"""


@dataclass
class Upgrading:
    """A control plane whose members have packages; `client` is a host of their network."""

    plane: ControlPlane
    client: LabHost
    versions: Mapping[str, Path]

    def files(self, name: str) -> Iterator[ManagedFile]:
        """Yield the files of a member by the fleet file of now."""
        node = self._node(name)
        yield from repository(Kubernetes(node).version, node.cluster.keys["kubernetes"]).files
        yield ManagedFile("", "/etc/apt/preferences.d/lab", _PIN)
        yield from kubelet_files(node)
        yield from Control(node).files() if node.member else ()

    def prepare(self, name: str) -> str:
        """Return the script that installs the packages on a blank member."""
        apt = ManagedFile("", "/etc/apt/apt.conf.d/lab", _APT)
        pack(self.client.folder / f"{name}.tar", iter((apt, *self.files(name))), NOTHING)
        hosts = f"echo {_address(self.client)} {_HOST} >>/etc/hosts\n"
        return f"FILES={self.client.folder}/{name}.tar\n{hosts}{_INSTALL}"

    def apply(
        self, _operator: object, _plan: FleetPlan, machines: Sequence[NodeLocation], roles: frozenset[str]
    ) -> SimpleNamespace:
        """Write the files of the roles on a member, and make its own again, as `apply_machines` would."""
        (name,) = (machine.node.name for machine in machines)
        assert roles == {"containers", "kubernetes", *(("control",) if name in NAMES else ())}
        archive = self.client.folder / f"{name}.tar"
        pack(archive, self.files(name), NOTHING)
        restart = "; systemctl restart bedplate-member.service" if name in NAMES else ""
        self.plane.shell(name, f"tar --extract --directory=/ --file={archive}{restart}")
        return SimpleNamespace(outcomes=[SimpleNamespace(is_done=True)])

    def boot_worker(self, name: str) -> None:
        """Boot a machine of a site with its packages, whose Node object a double of kubelet keeps up to date."""
        host = self.plane.hosts[name]
        pack(
            host.folder / "files.tar",
            doubles(find_node(plan_of(Terminal(self.plane.fleet)), name, load_catalog())),
            NOTHING,
        )
        node = self._node(name)
        taint = [{"key": "lab", "effect": "NoSchedule"}]
        spec = {"providerID": node.provider, "taints": taint}
        document = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": spec}
        (host.folder / "node.json").write_text(json.dumps(document))
        self.plane.kubectl(NAMES[0], f"apply --filename {host.folder}/node.json")
        server = f"--kubeconfig={self.plane.config} --server=https://{self.plane.address(NAMES[0])}:6443"
        values = f"KUBECTL='kubectl {server} --request-timeout=5s' NODE={name}\n"
        script = f"{MOUNTS}{self.prepare(name)}echo $$ >{host.folder}/pid\nsystemctl restart kubelet.service\n"
        variables = (f"FILES={host.folder}/files.tar", "VOLUME=", f"PATH={member_path()}")
        command = ("unshare", "--mount", "env", "--ignore-environment", "HOME=/run", *variables)
        self.plane.running[name] = host.start(*command, "bash", "-c", f"{script}{values}{_HEARTBEAT}", log="log")
        until((host.folder / "pid").exists, 60, f"{name} boots")

    def command(self, *words: str) -> tuple[int, str]:
        """Run bedplate on the client; return its exit status and output."""
        cluster = cluster_plan(plan_of(Terminal(self.plane.fleet)))
        assert cluster
        hosts = self.client.folder / "hosts"
        hosts.write_text("".join(f"{member.address} {cluster.api}\n" for member in cluster.members))
        script = f"mount --bind {hosts} /etc/hosts; cd {ROOT}; exec {sys.executable} -m bedplate {' '.join(words)} 2>&1"
        command = ("unshare", "--mount", "env", "--ignore-environment", "HOME=/run", "bash", "-c", script)
        done = subprocess.run(
            ("ip", "netns", "exec", self.client.namespace, *command), capture_output=True, text=True, check=False
        )
        return done.returncode, done.stdout

    @contextmanager
    def probing(self) -> Iterator[LabProgram]:
        """Change an object through the API all the time; its output are the moments of success."""
        pki = self.plane.volume(NAMES[0]) / "pki"
        keys = self.client.folder / "client.pem"
        keys.write_text((pki / "apiserver-kubelet-client.crt").read_text())
        with keys.open("a") as file:
            file.write((pki / "apiserver-kubelet-client.key").read_text())
        addresses = (str(self._node(name).address) for name in NAMES)
        program = self.client.start(
            sys.executable, "-c", _PROBE, str(pki / "ca.crt"), str(keys), *addresses, log="probe"
        )
        try:
            until(lambda: program.output.count("\n") > 2, 30, "the API answers the client")
            yield program
        finally:
            program.end()

    def _node(self, name: str) -> ClusterNode:
        node = find_node(plan_of(Terminal(self.plane.fleet)), name, load_catalog()).cluster
        assert node
        return node


def longest_gap(program: LabProgram) -> float:
    """Return the longest time in seconds between two successes of a client."""
    moments = [float(line) for line in program.output.split()]
    return max(after - before for before, after in pairwise(moments))


def serve_packages(client: LabHost, versions: Mapping[str, Path]) -> None:
    """Start the repository of the packages of each version, on a host of the lab."""
    for version, programs in versions.items():
        minor = ".".join(version.removeprefix("v").split(".")[:2])
        folder = client.folder / f"web/core:/stable:/v{minor}/deb"
        folder.mkdir(parents=True)
        build, numbers = client.folder / "build", dict.fromkeys(KUBERNETES, version.removeprefix("v"))
        index = [_package(build, folder, *pair, programs) for pair in (numbers | {CONTAINERD: RUNTIME}).items()]
        (folder / "Packages").write_text("\n".join(index))
    key, certificate = client.folder / "web.key", client.folder / "web.crt"
    subject = ("-subj", f"/CN={_HOST}", "-days", "2", "-keyout", str(key), "-out", str(certificate))
    subprocess.run(
        ("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", *subject), check=True, capture_output=True
    )
    script = (
        "import http.server, ssl, functools;"
        f"web = {str(client.folder / 'web')!r};"
        "handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=web);"
        "server = http.server.ThreadingHTTPServer(('', 443), handler);"
        "context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER);"
        f"context.load_cert_chain({str(certificate)!r}, {str(key)!r});"
        "server.socket = context.wrap_socket(server.socket, server_side=True); server.serve_forever()"
    )
    client.start(sys.executable, "-c", script, log="web.log")
    until(lambda: client.tries("curl", "-sk", "https://127.0.0.1/"), 20, "the repository answers")


def _package(build: Path, folder: Path, name: str, version: str, programs: Path) -> str:
    """Build a package whose program is a link, and return its paragraph of the index."""
    root = build / f"{name}-{version}"
    (root / "DEBIAN").mkdir(parents=True, exist_ok=True)
    (root / "usr/local/sbin").mkdir(parents=True, exist_ok=True)
    if (programs / name).exists() and name in KUBERNETES:
        (root / "usr/local/sbin" / name).symlink_to(programs / name)
    control = f"Package: {name}\nVersion: {version}-1.1\nArchitecture: all\nMaintainer: lab\nDescription: {name}\n"
    (root / "DEBIAN/control").write_text(control)
    file = folder / f"{name}_{version}.deb"
    subprocess.run(("dpkg-deb", "--build", "--root-owner-group", root, file), check=True, capture_output=True)
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    return f"{control}Filename: {file.name}\nSize: {file.stat().st_size}\nSHA256: {digest}\n"


def _address(host: LabHost) -> str:
    """Return the address of a host's first device."""
    (device,) = json.loads(host.run("ip", "-4", "-json", "address", "show", "dev", "eth0"))
    return str(device["addr_info"][0]["local"])
