"""Ready-made sets of test nodes: laptop gateways, a node with a packet filter, and a file server with a client.

Booting and applying the laptop gateways takes a minute, so tests share them, and restore daemons and access afterwards.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

from bedplate.lock import lock_path, record_endpoints
from bedplate.plan.firewall import FirewallRule
from bedplate.plan.nodes import NodePlan
from roles.base import file_text
from roles.hardened import firewall
from roles.hardened.firewall import ruleset
from roles.hardened.logins import CONFIRM, SCRIPT, settings
from roles.people.role import People
from roles.storage.mounts import HOMES
from roles.storage.role import Storage
from tests.testlab.fleets.variants import lab_node
from tests.testlab.machines.container import CommandError
from tests.testlab.machines.lab import write_recorded_fleet
from tests.testlab.machines.node_lab import Node, NodeLab
from tests.testlab.machines.operator import Operator, apply_roles
from tests.testlab.machines.user_mode import user_mode_layers
from tests.testlab.network.netlab import LabProgram, until
from tests.testlab.run import need_processor_without, need_program, need_root

GATE, HOME = "gate.cellar", "laptops.us-west-2"
PUBLIC = "8.20.30.40"
CLOUD_PUBLIC = "52.1.2.3"
_ROLES = ("--role", "vpnagent", "--role", "openvpn")


@dataclass(frozen=True)
class LaptopGateways:
    """The laptop gateways of examples/lab.yaml, the operator, the fleet file, and the result of the first apply."""

    node_lab: NodeLab
    operator: Operator
    fleet: Path
    nodes: Mapping[str, Node]
    first: Mapping[str, Any]

    def apply(self) -> dict[str, Any]:
        """Apply both roles to both gateways; return the result for each."""
        options = ("--ssh-config", str(self.node_lab.ssh_config), "--user", "ubuntu", "--fleet", str(self.fleet))
        done = self.operator.bedplate("node", "apply", GATE, HOME, *_ROLES, *options, "--json")
        assert done.stdout, done.stderr
        nodes: dict[str, Any] = json.loads(done.stdout)["nodes"]
        return nodes

    def vpn(self, *words: str) -> CompletedProcess[str]:
        """Run a command of `bedplate vpn` that connects to gateways."""
        return self.operator.bedplate("vpn", *words, str(self.fleet), "--ssh-config", str(self.node_lab.ssh_config))

    def local_vpn(self, *words: str) -> str:
        """Run a local command of `bedplate vpn`, check that it succeeds, and return its stdout."""
        done = self.operator.bedplate("vpn", *words, str(self.fleet))
        assert done.returncode == 0, done.stderr
        return done.stdout

    @property
    def sessions(self) -> list[str]:
        """The laptops that are connected to the site's gateway."""
        status = json.loads(self.vpn("status", "--json").stdout)
        transports = status["gateways"][GATE]["laptops"]
        return [session["name"] for sessions in transports.values() for session in sessions]

    def dial(self, device: str) -> LabProgram:
        """Connect a device of ada: start OpenVPN on the workstation, without its routes."""
        profile = self.fleet.with_name(f"{device}.ovpn")
        profile.write_text(self.local_vpn("show", "ada", "--device", device))
        return self.connect(profile)

    def connect(self, profile: Path) -> LabProgram:
        """Start OpenVPN on the workstation with a profile, without its routes."""
        words = ("--config", str(profile), "--route-noexec", "--connect-timeout", "2")
        program = self.node_lab.workstation.host.start("openvpn", *words, log=f"{profile.stem}.log")
        try:
            until(lambda: "Initialization Sequence Completed" in program.output, 60, f"{profile.stem} did not connect")
        except AssertionError as error:
            raise AssertionError(f"{error}; end of its log:\n{program.output[-3000:]}") from None
        return program


@contextmanager
def laptop_gateways(folder: Path) -> Iterator[LaptopGateways]:
    """Yield both laptop gateways, applied and synced, with a certificate for ada's laptop."""
    fleet = write_recorded_fleet(folder)
    with NodeLab() as node_lab:
        nodes = {GATE: node_lab.boot(GATE, "192.168.40.1"), HOME: node_lab.boot(HOME, "10.64.0.4")}
        for node in nodes.values():
            open_device(node)
        nodes[GATE].run(f"ip address add {PUBLIC}/32 dev lo")
        node_lab.workstation.host.run("ip", "route", "add", f"{PUBLIC}/32", "dev", "n1")
        # An address of somebody else.
        node_lab.workstation.host.run("ip", "route", "add", "unreachable", f"{CLOUD_PUBLIC}/32")
        gateways = LaptopGateways(node_lab, Operator(node_lab, fleet), fleet, nodes, {})
        record_cloud(fleet)
        for words in (("init",), ("add", "ada")):
            gateways.local_vpn(*words)
        gateways = replace(gateways, first=gateways.apply())
        done = gateways.vpn("sync")
        assert done.returncode == 0, done.stderr
        yield gateways


def record_cloud(fleet: Path) -> None:
    """Record what `vpn record` reads from AWS: the address of the gateway in the cloud, and those of its resolver."""
    resolver = tuple(map(IPv4Address, ("10.64.32.5", "10.64.64.7")))
    record_endpoints(lock_path(fleet), "lab", {"us-west-2": IPv4Address(CLOUD_PUBLIC)}, {"us-west-2": resolver})


def open_device(node: Node) -> None:
    """Make /dev/net/tun accessible to all users, as udev does; containers have no udev."""
    node.run("chmod 666 /dev/net/tun")


LAN = FirewallRule("ssh-from-cellar", "SSH from the cellar", IPv4Network("192.168.40.0/22"), "tcp", 22)
OPEN = ruleset((LAN,), frozenset())
KEYS_ONLY = settings(frozenset())
# A second sshd on this port simulates another service.
HIDDEN = 2200
_UNITS = ("bedplate-filter.service", firewall.UNIT)


def boot_with_filter(node_lab: NodeLab) -> Node:
    """Boot a node, and activate and confirm its packet filter as an apply does."""
    node = node_lab.boot("nas.cellar", "192.168.40.5")
    script = node.root / SCRIPT.removeprefix("/")
    script.write_text(file_text("hardened/bedplate-trial"))
    script.chmod(0o755)
    for unit in _UNITS:
        (node.root / "etc/systemd/system" / unit).write_text(file_text(f"hardened/{unit}"))
    write_wanted(node, OPEN)
    (node.root / firewall.PATH.removeprefix("/")).write_text(firewall.emergency_ruleset((LAN,)))
    node.run(f"ssh-keygen -A; systemctl enable {' '.join(_UNITS)}; {SCRIPT} begin 60")
    node.ssh(f"sudo {CONFIRM}").check_returncode()
    return node


def write_wanted(node: Node, packets: str, sshd: str = KEYS_ONLY) -> None:
    """Write the requested packet filter and sshd settings, as the role does."""
    folder = node.root / "etc/bedplate/wanted"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "filter.nft").write_text(packets)
    (folder / "sshd.conf").write_text(sshd)


def port_answers(node: Node, port: int) -> bool:
    """Return whether the workstation can connect to a port of a node."""
    connect = ("bash", "-c", f"exec 3<>/dev/tcp/{node.address}/{port}")
    return node.workstation.run("timeout", "3", *connect).returncode == 0


WORKBENCH, SERVER = "titan-03.cellar", "nas.cellar"


def roles_of(node: NodePlan) -> tuple[People, Storage]:
    """Return the roles people and storage of a node in the plan, with homes on its file server."""
    homes = next((share.path for share in node.shares if share.mount == HOMES), None)
    return People(node.accounts, homes), Storage(node.mounts, node.shares)


@contextmanager
def node_lab_with_kernels() -> Iterator[NodeLab]:
    """Yield a node lab whose nodes can switch to their own kernels."""
    need_root()
    for program in ("systemd-nspawn", "mmdebstrap", "slirp4netns", "nft", "ssh", "mke2fs"):
        need_program(program)
    # Linux 6.1 copies the processor's state with a buffer that is too small for AMX, and panics when it starts init.
    need_processor_without("amx_tile", "User Mode Linux 6.1 does not run on processors with AMX")
    with NodeLab(user_mode_layers()) as opened:
        yield opened


def boot_file_server(node_lab: NodeLab) -> Node:
    """Boot the file server, with its folders on a tmpfs: overlay file systems have no file handles."""
    booted = node_lab.boot(SERVER, str(lab_node(SERVER).address))
    booted.run("mount -t tmpfs tmpfs /srv")
    apply_roles(node_lab, SERVER, *roles_of(lab_node(SERVER)))
    return booted


def boot_client(nas: Node, node_lab: NodeLab) -> Node:
    """Boot a workbench that mounts from the file server."""
    booted = node_lab.boot(WORKBENCH, str(lab_node(WORKBENCH).address))
    booted.run(f"echo '{nas.address} nas.cellar.lab.internal' >> /etc/hosts")
    apply_roles(node_lab, WORKBENCH, *roles_of(lab_node(WORKBENCH)))
    return booted


def mounted_types(node: Node, path: str) -> list[str]:
    """Return the types of the file systems mounted at a path, the lowest first, without a request to the server."""
    lines = node.run("cat /proc/self/mountinfo").splitlines()
    return [line.split(" - ")[1].split()[0] for line in lines if line.split()[4] == path]


_AS_PERSON = "su --login {} --command '{}'"
_ROOT_COMMANDS = ("chown ada /data/of-root", "ls /home/ada", "touch /home/of-root")
_DENIED = ("not permitted", "denied")
# Answer of a server that refuses the client's port.
_PORT_REFUSED = ("No such file",)


@dataclass(frozen=True, slots=True)
class SharedFile:
    """A file that ada wrote on both nodes: its state on server and client, and the error for grace."""

    uid: str
    on_server: list[str]
    on_client: list[str]
    error_for_grace: str


def as_person(name: str, script: str) -> str:
    """Return the command that runs a script in a login shell of a person."""
    return _AS_PERSON.format(name, script)


def write_on_both(nas: Node, workbench: Node) -> SharedFile:
    """Write a file as ada on the client, and append to it on the server."""
    uid = str(lab_node(workbench.name).accounts.uids["ada"])
    workbench.run(as_person("ada", "umask 077; echo from bench > kept"))
    on_server = nas.run("stat --format='%u %g %a' /srv/home/ada/kept /home/ada/kept").splitlines()
    nas.run(as_person("ada", "echo from server >> kept"))
    on_client = workbench.run(as_person("ada", "id --user; stat --format=%u kept; cat kept")).splitlines()
    return SharedFile(uid, on_server, on_client, _refusal(workbench, as_person("grace", "cat /home/ada/kept")))


def try_as_client_root(nas: Node, workbench: Node) -> tuple[str, list[str]]:
    """Return the owner of a file that a client's root wrote, and the errors of its other commands."""
    workbench.run("touch /data/of-root")
    return nas.run("stat --format=%U /srv/data/of-root").strip(), [
        _refusal(workbench, command) for command in _ROOT_COMMANDS
    ]


def mount_refusal(port: str, nas: Node, workbench: Node) -> str:
    """Return the error of a mount with a kind of port, `resvport` or `noresvport`; an empty text if it succeeds."""
    workbench.run("systemctl stop home.mount data.mount")
    return _refusal(
        workbench,
        f"mount -t nfs4 -o vers=4.2,retry=0,{port} {nas.address}:/srv/data /mnt && umount /mnt",
        *_PORT_REFUSED,
    )


def _refusal(node: Node, script: str, *more: str) -> str:
    """Return the error if a script is denied, else an empty text. Raises CommandError for other failures."""
    try:
        node.run(script)
    except CommandError as error:
        if any(word in str(error) for word in (*_DENIED, *more)):
            return str(error)
        raise
    return ""
