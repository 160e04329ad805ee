"""A machine of the cluster in mounts of its own: the roles' files, and what the real kubeadm makes from them."""

import io
import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from bedplate.nodes.audit import CHECKS
from bedplate.plan import FleetPlan
from bedplate.plan.capacity import worker_capacity
from bedplate.plan.cluster import ClusterNode
from bedplate.plan.nodes import NodeRole
from roles.approver.role import Approver
from roles.base import ManagedFile, file_text
from roles.capacity.role import METRICS, Capacity
from roles.containers.role import container_files
from roles.control.role import ENCRYPTION, PKI, Control
from roles.hardened.logins import DROP_IN, MAIN, settings
from roles.kubernetes.role import MODULES, SYSCTL, kubelet_files
from roles.tokens.role import Tokens, cluster_accounts
from roles.worker.role import Worker
from tests.testlab.machines.defects import Defect, Rule
from tests.testlab.rehearsal.programs import plan_of
from tests.testlab.run import ROOT

# 32 zero bytes; `kube init` makes a random key.
_KEYS = f"""apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
  - resources: [secrets]
    providers:
      - secretbox:
          keys: [{{name: first, secret: {"A" * 43}=}}]
      - identity: {{}}
"""
# Every folder that roles write to is an overlay in memory, which ends with the process.
MOUNTS = """set -e
mount -t tmpfs tmpfs /mnt
for folder in etc opt var/lib var/log usr/local/lib usr/local/sbin usr/local/bin run; do
  mkdir -p "/mnt/upper/$folder" "/mnt/work/$folder"
  mount -t overlay overlay -o "lowerdir=/$folder,upperdir=/mnt/upper/$folder,workdir=/mnt/work/$folder" "/$folder"
done
ip link set lo up
mkdir -p /var/lib/etcd && mount ${VOLUME:+--bind} ${VOLUME:-"-ttmpfs" tmpfs} /var/lib/etcd
tar --extract --directory=/ --file="$FILES"
"""


@dataclass(frozen=True, slots=True)
class Member:
    """A member of the plan, and a folder for what its tests write."""

    fleet: Path
    node: ClusterNode
    folder: Path

    def run(self, script: str) -> str:
        """Run a script as root in mounts and a network of its own, with the member's files; return its output."""
        archive = self.folder / "files.tar"
        pack(archive, _files(self.node, plan_of(self.fleet)), self.folder / "authorities")
        command = ("unshare", "--mount", "--net", "bash", "-c", f"{MOUNTS}{script}")
        done = subprocess.run(command, text=True, capture_output=True, check=False, env=_environment(archive))
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def check_defects(self, seeded: dict[Rule, Defect]) -> dict[Rule, str]:
        """Return the outcome of each rule without and with its defect, after the member has been made."""
        order, result = self.folder / "order.json", self.folder / "outcomes.json"
        defects = {"/".join(rule): asdict(defect) for rule, defect in seeded.items()}
        order.write_text(json.dumps({"console": ["bash", "-ec"], "defects": defects, "outcomes": str(result)}))
        setting = f"-c {CHECKS}/pytest.ini --rootdir {CHECKS} -p tests.testlab.machines.defects"
        host = f"--fleet={self.fleet} --node={self.node.name} --hosts=here://{self.node.name} --defects={order}"
        files = " ".join(sorted({f"{CHECKS}/test_{role}.py" for role, _ in seeded}))
        pytest = f"{sys.executable} -m pytest -p testinfra.plugin {setting} {host} {files}"
        start = f"{MAKE}\n{_STARTED}" if self.node.member else _JOINED
        self.run(f"{start}\ncd {ROOT}\n{pytest} >{self.folder}/log 2>&1 || true")
        assert result.exists(), (self.folder / "log").read_text()
        outcomes: dict[str, str] = json.loads(result.read_text())
        return {rule: outcomes.get("/".join(rule), "did not run") for rule in seeded}


MEMBER = "/usr/local/lib/bedplate/control-member"
# As the first member of a cluster, whose etcd has not started.
_INITIAL = "echo \"new lab $(sed -n '/name: initial-cluster$/{n;s/^ *value: *//p}' /etc/kubernetes/kubeadm.yaml)\""
MAKE = f"{_INITIAL} >/var/lib/etcd/initial; {MEMBER} >/dev/null"
# What etcd, kubelet and the capacity controller leave behind when they run.
_STARTED = f"""ssh-keygen -q -A; mkdir -p /run/sshd
mkdir -p /var/lib/etcd/data/member /var/lib/etcd/snapshots /run/bedplate {Path(METRICS).parent}
touch {METRICS}
echo snapshot >/var/lib/etcd/snapshots/20261123T000000Z.db
echo KUBELET_ARGS=--hostname-override=control-1.us-west-2 >/run/bedplate/kubelet.env
chmod -R go= /var/lib/etcd/data {PKI}"""

# What the agent leaves behind.
_JOINED = """mkdir -p /var/lib/kubelet/pki /etc/kubernetes
install -m 600 /dev/null /var/lib/kubelet/pki/kubelet-client-2026.pem
install -m 600 /dev/null /etc/kubernetes/kubelet.conf"""


def make_authorities(folder: Path) -> None:
    """Make the authorities of a cluster with kubeadm, in a folder."""
    for phase in ("ca", "etcd-ca", "front-proxy-ca", "sa"):
        command = (
            "kubeadm",
            "init",
            "phase",
            "certs",
            phase,
            "--cert-dir",
            str(folder),
            "--kubernetes-version=v1.36.0",
        )
        subprocess.run(command, check=True, capture_output=True, text=True)


def _files(node: ClusterNode, plan: FleetPlan) -> Iterator[ManagedFile]:
    yield from container_files({})
    yield from kubelet_files(node)
    if node.member is None:
        yield from Worker(node, cloud=False).files()
        return
    yield from Control(node).files()
    yield from Approver().files()
    capacity = worker_capacity(plan)
    yield from Capacity(capacity).files() if capacity else ()
    yield from Tokens(node.member.address, cluster_accounts(plan.accounts)).files()
    yield ManagedFile("", MAIN, f"Include {DROP_IN}\n")
    yield ManagedFile("", DROP_IN, settings(frozenset({NodeRole.CONTROL}), ("ada",)))
    for path, name in ((MODULES, "modules.conf"), (SYSCTL, "sysctl.conf")):
        yield ManagedFile("", path, file_text(f"kubernetes/{name}"))
    yield ManagedFile("", ENCRYPTION, _KEYS, "600")


def pack(archive: Path, files: Iterator[ManagedFile], authorities: Path) -> None:
    """Write the files and the authorities to an archive, as root's."""
    with tarfile.open(archive, "w") as tar:
        for file in files:
            entry, data = tarfile.TarInfo(file.path), file.text.encode()
            entry.size, entry.mode = len(data), int(file.mode, 8)
            tar.addfile(entry, io.BytesIO(data))
        if authorities.exists():
            tar.add(authorities, PKI)


def _environment(archive: Path) -> dict[str, str]:
    return {**os.environ, "FILES": str(archive), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
