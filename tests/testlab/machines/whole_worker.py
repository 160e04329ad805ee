"""What a whole worker of the cluster joins: a real API server with the approver, and a double of kubelet.

kubelet, kubeadm, kubectl, containerd.io and their helpers are placeholder packages: their archives are not reached from
test machines. `kubectl` in them is real. `kubelet` is `kernel/kubelet`: it registers the node with the certificate,
labels and taints that the machine has, reports it as ready, and runs no pods; real kubelets are in tests/kubernetes.
"""

import json
import shutil
from base64 import b64encode
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from bedplate.kubernetes.approval import Inventory, KnownMachine
from bedplate.lock import lock_path, record_authority
from bedplate.plan.cluster import BOOTSTRAPPERS, cluster_plan, machine_group
from bedplate.plan.fleet import FleetPlan
from bedplate.plan.nodes import NodePlan
from roles.catalog import roles_of
from roles.containers.role import Containers
from roles.kubernetes.role import Kubernetes
from tests.testlab.fakes.first_boot import Place
from tests.testlab.kubernetes.authority import ClusterAuthority
from tests.testlab.kubernetes.binaries import find_programs
from tests.testlab.kubernetes.control_plane import ControlPlane
from tests.testlab.kubernetes.joined_node import local_address
from tests.testlab.kubernetes.joining import Approvers
from tests.testlab.kubernetes.places import inside
from tests.testlab.machines.lab import FleetFolder
from tests.testlab.machines.node_lab import Node, NodeLab
from tests.testlab.machines.surroundings import KERNEL, add_address
from tests.testlab.network.netlab import LabHost, until
from tests.testlab.run import lack

_PACKAGES = r"""
set -e
pack() { # NAME VERSION: packs /srv/pack
  mkdir -p /srv/pack/DEBIAN
  printf '%s\n' "Package: $1" "Version: $2" 'Architecture: all' 'Maintainer: lab' 'Description: -' \
    >/srv/pack/DEBIAN/control
  dpkg-deb -Znone --build /srv/pack "/srv/$1.deb" >/dev/null
  dpkg --install "/srv/$1.deb" >/dev/null
  rm -r /srv/pack "/srv/$1.deb"
}
unit() { # NAME COMMAND
  mkdir -p /srv/pack/usr/lib/systemd/system /srv/pack/usr/bin
  printf '%s\n' '[Service]' "ExecStart=$2" Restart=always '[Install]' WantedBy=multi-user.target \
    >"/srv/pack/usr/lib/systemd/system/$1.service"
}
unit kubelet /usr/bin/kubelet; cp /root/kubelet /srv/pack/usr/bin/kubelet; chmod 755 /srv/pack/usr/bin/kubelet
pack kubelet KUBERNETES-1.1
mkdir -p /srv/pack/usr/bin; cp /root/kubectl /srv/pack/usr/bin/kubectl; pack kubectl KUBERNETES-1.1; rm /root/kubectl
for name in kubeadm kubernetes-cni cri-tools; do mkdir -p /srv/pack; pack $name KUBERNETES-1.1; done
unit containerd '/usr/bin/sleep infinity'; pack containerd.io CONTAINERD-1
"""


@dataclass
class _CloudApprovers(Approvers):
    """Approvers that read the keys of instances in the bucket, where the machine has published them."""

    place: Place | None = None
    bucket: str = ""

    def inventory(self, _now: float = 0.0, _requested: Collection[str] = ()) -> Inventory:
        """Return the machines with their published keys."""
        key = None
        if self.place and self.place.has_status(self.bucket, "join"):
            key = self.place.status(self.bucket, "join")["key"]
        machines = {name: replace(machine, key=key) for name, machine in self.machines.items()}
        return Inventory(machines, frozenset({"us-west-2"}))


@dataclass
class WholeCluster:
    """The API of the cluster, for machines of a node lab."""

    host: LabHost
    plane: ControlPlane

    def expect(self, machine: KnownMachine, name: str, place: Place | None, bucket: str, stack: ExitStack) -> None:
        """Run an approver that knows a machine; give its token to the machines of the account."""
        with inside(self.host):
            approvers = _CloudApprovers(self.plane, place=place, bucket=bucket)
            approvers.machines[name] = machine
            stack.enter_context(approvers.running("control-1"))
            token = approvers.approver.make_token()
        if place:
            call = {"Name": "/lab.workers/join", "Value": token, "Type": "SecureString", "Overwrite": True}
            place.aws.call("ssm", "put_parameter", **call)

    def token_of(self, name: str) -> str:
        """Return a token for a machine of a site, as `bedplate kube join` makes it."""
        groups = ("--groups", BOOTSTRAPPERS, "--groups", machine_group(name))
        with inside(self.host):
            return self.plane.kubeadm("token", "create", "--ttl", "15m", "--usages", "authentication", *groups).strip()

    def node(self, name: str) -> Mapping[str, Any]:
        """Return the Node object of a machine; empty before it has joined."""
        with inside(self.host):
            done = self.plane.try_kubectl("get", "node", name, "-o=json")
        document: dict[str, Any] = json.loads(done.stdout or "{}")
        return document


@contextmanager
def whole_cluster(lab: NodeLab, fleet: FleetFolder, plan: FleetPlan) -> Iterator[WholeCluster]:
    """Yield a cluster at the address of the first member, and record its authority."""
    programs, cluster = _programs(), cluster_plan(plan)
    assert cluster
    for member in cluster.members:
        add_address(lab, str(member.address))
    address, host = str(cluster.members[0].address), lab.workstation.host
    with ExitStack() as stack:
        stack.enter_context(local_address(address))
        plane = ControlPlane(programs, address, str(plan.services), str(plan.pods))
        plane.names = (cluster.api, cluster.endpoint.partition(":")[0])
        with inside(host):
            stack.enter_context(plane)
        _record(fleet, plan, plane.authority)
        yield WholeCluster(host, plane)


def _programs() -> Path:
    """Return the folder of the programs of Kubernetes."""
    programs = find_programs()
    if programs is None:
        lack("needs the programs of Kubernetes")
    return programs


def record_new_authority(fleet: FleetFolder, plan: FleetPlan, folder: Path) -> None:
    """Record the authority of a cluster that does not run."""
    folder.mkdir()
    _record(fleet, plan, ClusterAuthority.create(folder))


def _record(fleet: FleetFolder, plan: FleetPlan, authority: ClusterAuthority) -> None:
    """Record an authority, with a new key of tokens, which no machine of the test uses."""
    key = ec.generate_private_key(ec.SECP384R1()).public_key()
    der = key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    certificate = authority.certificate.read_text()
    record_authority(lock_path(fleet.fleet), plan.name, certificate, b64encode(der).decode())


def install_packages(node: Node, planned: NodePlan) -> None:
    """Install the placeholder packages of Kubernetes and containerd, in the versions of the roles."""
    (kubernetes,) = (role.version for role in roles_of(planned) if isinstance(role, Kubernetes))
    (containerd,) = (role.version for role in roles_of(planned) if isinstance(role, Containers))
    # A plan may leave the patch open.
    kubernetes += "" if kubernetes.count(".") > 1 else ".0"
    shutil.copy(_programs() / "kubectl", node.root / "root/kubectl")
    shutil.copy(KERNEL / "kubelet", node.root / "root/kubelet")
    shutil.copy(KERNEL / "apt-get", node.root / "usr/local/sbin/apt-get")
    (node.root / "usr/local/sbin/apt-get").chmod(0o755)
    script = _PACKAGES.replace("KUBERNETES", kubernetes).replace("CONTAINERD", containerd)
    node.run(script, seconds=120)


def wait_until_joined(cluster: WholeCluster, name: str, seconds: float = 180) -> Mapping[str, Any]:
    """Wait until a machine is a ready node without the taint of its gate; return its Node object."""

    def works() -> bool:
        node = cluster.node(name)
        if not node or any("gate" in taint["key"] for taint in node["spec"].get("taints", ())):
            return False
        return any(entry["type"] == "Ready" and entry["status"] == "True" for entry in node["status"]["conditions"])

    until(works, seconds, f"{name} does not join", every=1)
    return cluster.node(name)
