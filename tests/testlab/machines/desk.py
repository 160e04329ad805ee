"""Where the operator sits: a place in the network from which every node is reached, and through which nodes reach apt.

It lies outside this machine's own network: its way out is a program without rights (slirp4netns), not a route.
"""

import shutil
import subprocess
from collections.abc import Mapping
from ipaddress import IPv4Address
from itertools import count
from pathlib import Path

from tests.testlab.machines.container import call
from tests.testlab.network.netlab import Lab, LabHost, LabProgram, until

# slirp4netns's own name server, and the device by which packets leave.
NAME_SERVER, _AWAY = "10.0.2.3", "tap0"
_RULES = f"""
table inet desk {{
  set cut {{ type ipv4_addr; }}
  chain pass {{ type filter hook forward priority 0; ip saddr @cut drop; ip daddr @cut drop; }}
  chain in {{ type filter hook input priority 0; ip saddr @cut drop; }}
  chain out {{ type filter hook output priority 0; ip daddr @cut drop; }}
  chain away {{ type nat hook postrouting priority 100; oifname "{_AWAY}" masquerade; }}
}}
"""


class Desk:
    """A namespace with the operator's address, a wire to each node, and a way out."""

    def __init__(self, lab: Lab, address: IPv4Address) -> None:
        self.address = address
        self.host: LabHost = lab.host("desk")
        self._lab = lab
        self._wires = count(1)
        self._names = Path("/etc/netns") / self.host.namespace
        self._open()

    def wire(self, node: LabHost, address: IPv4Address) -> None:
        """Connect a node, which has this address and reaches everything by the desk."""
        device = f"n{next(self._wires)}"
        self._lab.wire((self.host, device, "169.254.0.1/32"), (node, "eth0", f"{address}/32"))
        self.host.run("ip", "route", "replace", str(address), "dev", device, "src", str(self.address))
        node.run("ip", "route", "add", str(self.address), "dev", "eth0")
        node.route("default", self.address)

    def cut(self, address: IPv4Address) -> None:
        """Lose every packet from and to a node, as a switch that died does."""
        self.host.run("nft", "add", "element", "inet", "desk", "cut", f"{{ {address} }}")

    def heal(self, address: IPv4Address) -> None:
        """Let its packets pass again."""
        self.host.run("nft", "delete", "element", "inet", "desk", "cut", f"{{ {address} }}")

    def resolve(self, name: str, address: IPv4Address) -> None:
        """Let the programs of this desk find a node by a name."""
        with (self._names / "hosts").open("a", encoding="utf-8") as hosts:
            hosts.write(f"{address} {name}\n")

    def run(
        self, *argv: str, env: Mapping[str, str] | None = None, seconds: float = 600, told: str = ""
    ) -> subprocess.CompletedProcess[str]:
        """Run a program here as the operator would, and return how it ended; `env` replaces this process's own."""
        command = ("ip", "netns", "exec", self.host.namespace, *argv)
        return subprocess.run(
            command, input=told, text=True, capture_output=True, timeout=seconds, env=env, check=False
        )

    def close(self) -> None:
        """Forget the names; what else it has goes with the laboratory."""
        shutil.rmtree(self._names, ignore_errors=True)

    def _open(self) -> None:
        self._names.mkdir(parents=True)
        (self._names / "hosts").write_text("127.0.0.1 localhost\n")
        (self._names / "resolv.conf").write_text(f"nameserver {NAME_SERVER}\n")
        self.host.run("ip", "address", "add", f"{self.address}/32", "dev", "lo")
        self.host.forward()
        self.host.load_rules(_RULES)
        _way_out(self.host)


def _way_out(host: LabHost) -> None:
    """Give a namespace its default route, by a program that goes when this process goes."""
    log = host.folder / "way-out.log"
    command = ("setpriv", "--pdeathsig", "KILL", "slirp4netns", "--configure", "--netns-type=path")
    with log.open("wb") as sink:
        popen = subprocess.Popen([*command, f"/run/netns/{host.namespace}", _AWAY], stdout=sink, stderr=sink)
    host.programs.append(LabProgram(popen, log))
    until(lambda: "default" in host.run("ip", "route", "show", "default"), 10, "the way out stands")


ADMIN = "ubuntu"
_UID = 1000
_KERNEL = Path(__file__).parent / "kernel"


def make_key(path: Path, comment: str) -> str:
    """Make an Ed25519 key pair at a path; return the public key as ssh-keygen writes it."""
    call("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", str(path))
    return path.with_name(f"{path.name}.pub").read_text().strip()


def prepared(root: Path, admin_key: str) -> str:
    """Write all that into a root that has not booted, and return its public host key."""
    host_key = make_key(root / "etc/ssh/ssh_host_ed25519_key", "node")
    (root / "etc/hostname").write_text("fresh\n")
    (root / "etc/hosts").write_text("127.0.0.1 localhost\n127.0.1.1 fresh\n")
    (root / "etc/resolv.conf").write_text(f"nameserver {NAME_SERVER}\n")
    (root / "etc/machine-id").write_text("")
    _add_admin(root, admin_key)
    _own_kernel(root)
    return host_key


def _add_admin(root: Path, key: str) -> None:
    call("chroot", str(root), "useradd", "--create-home", "--uid", str(_UID), "--shell", "/bin/bash", ADMIN)
    folder = root / "home" / ADMIN / ".ssh"
    folder.mkdir(mode=0o700)
    (folder / "authorized_keys").write_text(f"{key}\n")
    for path in (folder, folder / "authorized_keys"):
        shutil.chown(path, _UID, _UID)
    sudoers = root / "etc/sudoers.d/90-cloud-init-users"
    sudoers.write_text(f"{ADMIN} ALL=(ALL) NOPASSWD:ALL\n")
    sudoers.chmod(0o440)


def _own_kernel(root: Path) -> None:
    """Give the node a copy of the settings that the kernel has but once."""
    wanted = root / "etc/systemd/system/sysinit.target.wants"
    wanted.mkdir(parents=True, exist_ok=True)
    unit = root / "etc/systemd/system/own-kernel.service"
    shutil.copy(_KERNEL / unit.name, unit)
    (wanted / unit.name).symlink_to(f"/etc/systemd/system/{unit.name}")
    shutil.copy(_KERNEL / "own-kernel", root / "usr/local/sbin/own-kernel")
    # Formats of programs are the kernel's too, and have no copy.
    (unit.parent / "systemd-binfmt.service").symlink_to("/dev/null")
