"""The operator's workstation: a network namespace that reaches every test node, and routes them to package mirrors.

It is separate from this machine's network: slirp4netns, an unprivileged program, connects it to the outside. The module
also prepares the root folder of a node before its first boot.
"""

import shutil
import subprocess
from collections.abc import Mapping
from ipaddress import IPv4Address
from itertools import count
from pathlib import Path

from tests.testlab.machines.container import call
from tests.testlab.network.netlab import Lab, LabHost, LabProgram, until

# slirp4netns's name server, and its device.
NAME_SERVER, _UPLINK = "10.0.2.3", "tap0"
_RULES = f"""
table inet workstation {{
  set cut {{ type ipv4_addr; }}
  chain pass {{ type filter hook forward priority 0; ip saddr @cut drop; ip daddr @cut drop; }}
  chain in {{ type filter hook input priority 0; ip saddr @cut drop; }}
  chain out {{ type filter hook output priority 0; ip daddr @cut drop; }}
  chain away {{ type nat hook postrouting priority 100; oifname "{_UPLINK}" masquerade; }}
}}
"""


class Workstation:
    """A network namespace with the operator's address, a link to each node, and a route to the outside."""

    def __init__(self, lab: Lab, address: IPv4Address) -> None:
        self.address = address
        self.host: LabHost = lab.host("workstation")
        self._lab = lab
        self._wires = count(1)
        self._names = Path("/etc/netns") / self.host.namespace
        self._open()

    def wire(self, node: LabHost, address: IPv4Address) -> None:
        """Connect a node that will have this address."""
        device = f"n{next(self._wires)}"
        self._lab.wire((self.host, device, "169.254.0.1/32"), (node, "eth0", ""))
        self.host.run("ip", "route", "replace", str(address), "dev", device, "src", str(self.address))

    def cut(self, address: IPv4Address) -> None:
        """Drop all packets from and to a node, as a failed switch would."""
        self.host.run("nft", "add", "element", "inet", "workstation", "cut", f"{{ {address} }}")

    def heal(self, address: IPv4Address) -> None:
        """Stop dropping the packets of a node."""
        self.host.run("nft", "delete", "element", "inet", "workstation", "cut", f"{{ {address} }}")

    def resolve(self, name: str, address: IPv4Address) -> None:
        """Add the name of a node to the workstation's /etc/hosts."""
        with (self._names / "hosts").open("a", encoding="utf-8") as hosts:
            hosts.write(f"{address} {name}\n")

    def run(
        self, *argv: str, env: Mapping[str, str] | None = None, seconds: float = 600, stdin: str = ""
    ) -> subprocess.CompletedProcess[str]:
        """Run a program as the operator, and return its result; `env` replaces the environment of this process."""
        command = ("ip", "netns", "exec", self.host.namespace, *argv)
        return subprocess.run(
            command, input=stdin, text=True, capture_output=True, timeout=seconds, env=env, check=False
        )

    def close(self) -> None:
        """Remove the names; the network lab removes everything else."""
        shutil.rmtree(self._names, ignore_errors=True)

    def _open(self) -> None:
        self._names.mkdir(parents=True)
        (self._names / "hosts").write_text("127.0.0.1 localhost\n")
        (self._names / "resolv.conf").write_text(f"nameserver {NAME_SERVER}\n")
        self.host.run("ip", "address", "add", f"{self.address}/32", "dev", "lo")
        self.host.forward()
        self.host.load_rules(_RULES)
        _connect_outside(self.host)


def _connect_outside(host: LabHost) -> None:
    """Give a namespace a default route through slirp4netns, which ends with this process."""
    log = host.folder / "slirp4netns.log"
    command = ("setpriv", "--pdeathsig", "KILL", "slirp4netns", "--configure", "--netns-type=path")
    with log.open("wb") as sink:
        popen = subprocess.Popen([*command, f"/run/netns/{host.namespace}", _UPLINK], stdout=sink, stderr=sink)
    host.programs.append(LabProgram(popen, log))
    until(lambda: "default" in host.run("ip", "route", "show", "default"), 10, "slirp4netns adds no default route")


ADMIN = "ubuntu"
_KERNEL = Path(__file__).parent / "kernel"


def make_key(path: Path, comment: str) -> str:
    """Create an Ed25519 key pair at a path; return the public key as ssh-keygen writes it."""
    call("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", str(path))
    return path.with_name(f"{path.name}.pub").read_text().strip()


_USER_DATA = """#cloud-config
users:
  - name: {admin}
    uid: 1000
    shell: /bin/bash
    sudo: ALL=(ALL) NOPASSWD:ALL
    ssh_authorized_keys: ["{key}"]
"""
_NETPLAN = """network:
  version: 2
  ethernets:
    eth0:
      addresses: [{address}/32]
      routes: [{{to: default, via: {gateway}, on-link: true}}]
      nameservers: {{addresses: [{name_server}]}}
      accept-ra: false
      link-local: []
"""


def prepare_root(root: Path, admin_key: str, address: IPv4Address, gateway: IPv4Address) -> str:
    """Prepare a root for its first boot, in which cloud-init adds the first account; return the public host key."""
    host_key = make_key(root / "etc/ssh/ssh_host_ed25519_key", "node")
    (root / "etc/hosts").write_text("127.0.0.1 localhost\n127.0.1.1 fresh\n")
    (root / "etc/machine-id").write_text("")
    seed = root / "var/lib/cloud/seed/nocloud"
    seed.mkdir(parents=True)
    (seed / "meta-data").write_text(f"instance-id: {address}\nlocal-hostname: fresh\n")
    (seed / "user-data").write_text(_USER_DATA.format(admin=ADMIN, key=admin_key))
    netplan = root / "etc/netplan/50-cloud-init.yaml"
    netplan.write_text(_NETPLAN.format(address=address, gateway=gateway, name_server=NAME_SERVER))
    netplan.chmod(0o600)
    _copy_sysctls(root)
    return host_key


def _copy_sysctls(root: Path) -> None:
    """Give the node copies of the sysctls that exist once per kernel."""
    links = root / "etc/systemd/system/sysinit.target.wants"
    links.mkdir(parents=True, exist_ok=True)
    unit = root / "etc/systemd/system/own-kernel.service"
    shutil.copy(_KERNEL / unit.name, unit)
    mask = unit.parent / "systemd-binfmt.service"
    for link in (links / unit.name, mask):
        link.unlink(missing_ok=True)  # an image has them
    (links / unit.name).symlink_to(f"/etc/systemd/system/{unit.name}")
    shutil.copy(_KERNEL / "own-kernel", root / "usr/local/sbin/own-kernel")
    # binfmt registrations exist once per kernel, too, but cannot be copied.
    mask.symlink_to("/dev/null")
