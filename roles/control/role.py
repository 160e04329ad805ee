"""The role `control`: a member of the control plane. kubeadm makes its files at boot, and kubelet runs them.

Until `/var/lib/etcd/pki` holds the authorities, the role's units do nothing.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from pyinfra.operations import server, systemd

from bedplate.plan.cluster import ClusterNode
from roles.base import Changes, DiskSpace, Role, changed
from roles.control.documents import (
    AUDIT,
    AUDIT_POLICY,
    AUTHENTICATION,
    AUTHENTICATION_CONFIGURATION,
    PATCHES,
    member_documents,
    restart_patch,
)
from roles.files import ManagedFile, file_text, put_files
from roles.kubernetes.kubelet import yaml_text
from roles.system import install_packages, start_units

KUBEADM = "/etc/kubernetes/kubeadm.yaml"
MEMBER, RENEWAL = "bedplate-member.service", "bedplate-member.timer"
SNAPSHOT, TIMER = "bedplate-etcd-snapshot.service", "bedplate-etcd-snapshot.timer"
_PROGRAMS = "/usr/local/lib/bedplate"
# The program of operators is on the path of sudo.
PROGRAM = "/usr/local/sbin/bedplate-member"


@dataclass(frozen=True, slots=True)
class Control(Role):
    """A member of the control plane."""

    node: ClusterNode
    name: ClassVar[str] = "control"
    space: ClassVar[DiskSpace] = DiskSpace(programs=50, state=20)

    def install(self) -> None:
        """Install the client of etcd, for snapshots."""
        install_packages("Install the client of etcd", ("etcd-client",))

    def configure(self) -> Changes:
        """Write the configuration of the member, and its units."""
        return put_files(*control_files(self.node))

    def activate(self, changes: Changes) -> None:
        """Enable the units; after a change make the member's files again, from which kubelet restarts what differs."""
        systemd.daemon_reload(name="Reload systemd for the control plane", _if=changed(changes))
        systemd.service(name="Enable the member at boot", service=MEMBER, running=None, enabled=True)
        server.shell(name="Make the member's files", commands=[f"systemctl restart {MEMBER}"], _if=changed(changes))
        start_units({"Take snapshots of etcd": TIMER, "Renew certificates": RENEWAL})


def control_files(node: ClusterNode) -> Iterator[ManagedFile]:
    """Yield every file of a member; none holds a secret."""
    yield ManagedFile("Write the configuration of kubeadm", KUBEADM, yaml_text(*member_documents(node)))
    audit, authentication = yaml_text(AUDIT_POLICY), yaml_text(AUTHENTICATION_CONFIGURATION)
    yield ManagedFile("Write the audit policy", AUDIT, audit)
    yield ManagedFile("Write who is authenticated", AUTHENTICATION, authentication)
    patch = yaml_text(restart_patch(audit, authentication))
    yield ManagedFile("Write the patch of the API server", f"{PATCHES}/kube-apiserver+merge.yaml", patch)
    for program in ("control-member", "etcd-snapshot"):
        path = f"{_PROGRAMS}/{program}"
        yield ManagedFile(f"Write {path}", path, file_text(f"control/{program}"), "755")
    yield ManagedFile("Write the program of operators", PROGRAM, file_text("control/bedplate-member"), "755")
    for unit in (MEMBER, RENEWAL, SNAPSHOT, TIMER):
        yield ManagedFile(f"Write {unit}", f"/etc/systemd/system/{unit}", file_text(f"control/{unit}"))
    drop_in = "/etc/systemd/system/kubelet.service.d/80-bedplate-member.conf"
    yield ManagedFile("Let kubelet wait for the member's files", drop_in, file_text("control/kubelet.conf"))
