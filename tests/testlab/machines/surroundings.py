"""What a whole machine has around it: name server, metadata service, S3, an EFS file system, other hosts of the fleet.

All of it is in the network of the workstation. The machine reaches it by the addresses and names that it has in AWS,
through its own packet filter and by TLS. `kernel/whole-hardware` gives the machine what containers lack: the name of
its EC2 type, and NFS as an entry of /proc/filesystems, whose mounts are those of `kernel/mount.nfs4`.
"""

import shutil
import ssl
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from bedplate.plan.mounts import Mount, MountKind
from bedplate.plan.nodes import NodePlan
from roles.storage.mounts import HOMES
from tests.testlab.fakes.aws import metadata_service
from tests.testlab.machines.cloud import METADATA
from tests.testlab.machines.container import call
from tests.testlab.machines.file_server import FileServer, serving_files
from tests.testlab.machines.node_lab import Node, NodeLab, bind_socket
from tests.testlab.machines.workstation import NAME_SERVER
from tests.testlab.network.netlab import LabHost, until

KERNEL = Path(__file__).parent / "kernel"
EFS = "198.51.100.9"
_DNS_PORT = 5353
_TO_NAMES = f"""
table ip names {{
  chain to {{ type nat hook prerouting priority -100; ip daddr {NAME_SERVER} udp dport 53 redirect to :{_DNS_PORT}; }}
}}
"""


@dataclass(frozen=True)
class Authority:
    """A certificate authority of the test; its files are in `folder`."""

    folder: Path

    @classmethod
    def create(cls, folder: Path) -> "Authority":
        """Make the authority in a new folder."""
        folder.mkdir()
        authority = cls(folder)
        authority._request("ca", "/CN=Test authority")
        return authority

    @property
    def text(self) -> str:
        """Its certificate."""
        return (self.folder / "ca.pem").read_text()

    def context(self, name: str) -> ssl.SSLContext:
        """Return the TLS settings of a server with a certificate for a name."""
        signed = ("-CA", f"{self.folder}/ca.pem", "-CAkey", f"{self.folder}/ca.key")
        self._request("server", "/CN=server", *signed, "-addext", f"subjectAltName=DNS:{name}")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.folder / "server.pem", self.folder / "server.key")
        return context

    def _request(self, stem: str, subject: str, *more: str) -> None:
        kind = ("-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2")
        files = ("-keyout", f"{self.folder}/{stem}.key", "-out", f"{self.folder}/{stem}.pem")
        call("openssl", "req", *kind, "-subj", subject, *files, *more)


def add_address(lab: NodeLab, address: str) -> None:
    """Give the workstation one more address, that of another host."""
    lab.workstation.host.run("ip", "address", "replace", f"{address}/32", "dev", "lo")


def equip(node: Node, authority: Authority, script: str = "", machine_type: str = "") -> None:
    """Give a machine its hardware, now and at each boot, and the authority; `script` is more of it."""
    (node.root / "usr/local/share/ca-certificates/lab.crt").write_text(authority.text)
    files = {"mount.nfs4": "usr/local/lib/lab", "findmnt": "usr/local/bin", "whole-hardware": "usr/local/lib/lab"}
    for name, folder in files.items():
        (node.root / folder).mkdir(parents=True, exist_ok=True)
        shutil.copy(KERNEL / name, node.root / folder / name)
    (node.root / "usr/local/lib/lab/more").write_text(script)
    (node.root / "usr/local/lib/lab/type").write_text(machine_type)
    shutil.copy(KERNEL / "whole-hardware.service", node.root / "etc/systemd/system/whole-hardware.service")
    node.run(
        "update-ca-certificates >/dev/null 2>&1; dpkg-divert --quiet --local --no-rename --add /sbin/mount.nfs4\n"
        "ln -sf /usr/local/lib/lab/mount.nfs4 /sbin/mount.nfs4; chmod 755 /usr/local/lib/lab/mount.nfs4\n"
        "chmod 755 /usr/local/bin/findmnt; systemctl --quiet enable whole-hardware; systemctl start whole-hardware"
    )


@contextmanager
def answering_names(lab: NodeLab, names: Mapping[str, str], listening: tuple[str, ...] = ()) -> Iterator[None]:
    """Be the name server of machines, which forwards other names; also at the addresses of resolvers."""
    host = lab.workstation.host
    host.load_rules(_TO_NAMES)
    for address in listening:
        add_address(lab, address)
    records = [f"--host-record={name},{address}" for name, address in names.items()]
    options = ("--keep-in-foreground", "--no-hosts", "--no-resolv", f"--server={NAME_SERVER}", "--user=root")
    programs = [host.start("dnsmasq", *options, *records, f"--port={_DNS_PORT}", log="names.log")]
    if listening:
        places = [f"--listen-address={address}" for address in listening]
        programs.append(host.start("dnsmasq", *options, *records, "--bind-interfaces", *places, log="resolvers.log"))
    until(lambda: host.tries("sh", "-c", f"ss -lun | grep -q :{_DNS_PORT}"), 10, "dnsmasq does not listen")
    try:
        yield
    finally:
        for program in programs:
            program.end()


@contextmanager
def metadata_at_its_address(host: LabHost, facts: Mapping[str, str], hops: int) -> Iterator[None]:
    """Serve the metadata of an instance at 169.254.169.254."""
    host.run("ip", "address", "replace", f"{METADATA}/32", "dev", "lo")
    with metadata_service(facts, bind_socket(host, METADATA, 80), hops):
        yield


def address_of(mount: Mount, planned: NodePlan) -> str:
    """Return the address of the server of a mount."""
    (address, *_) = planned.hosts.get(mount.server, (EFS,))
    return str(address)


@contextmanager
def file_systems(lab: NodeLab, authority: Authority, planned: NodePlan, folder: Path) -> Iterator[FileServer]:
    """Serve each store of a machine from a folder of its own: EFS over TLS, a site's file server without it."""
    exports = {mount.export: folder / mount.store for mount in planned.mounts}
    for mount, path in zip(planned.mounts, exports.values(), strict=True):
        path.mkdir(parents=True)
        path.chmod(0o755 if mount.path == HOMES else 0o1777)
    places = {address_of(mount, planned): mount for mount in planned.mounts}
    server = FileServer(exports)
    with ExitStack() as stack:
        for address, mount in places.items():
            add_address(lab, address)
            is_efs = mount.kind is MountKind.EFS
            tls = authority.context(f"{mount.store}.efs.{mount.region}.amazonaws.com") if is_efs else None
            stack.enter_context(serving_files(lab.workstation.host, address, server, tls))
        yield server
