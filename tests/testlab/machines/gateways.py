"""Both gateways of laptops of examples/lab.yaml, made by roles and keyed by a sync, with ada's laptops at the desk.

Booting and applying take a minute, so tests share one; each leaves the daemons, and who is let in, as it found them.
"""

import json
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from ipaddress import IPv4Network
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

from bedplate.plan.firewall import Rule
from bedplate.plan.nodes import NodePlan
from roles.files import text_of
from roles.hardened import firewall
from roles.hardened.firewall import ruleset
from roles.hardened.logins import CONFIRM, SCRIPT, settings
from roles.people.role import People
from roles.storage.mounts import HOMES
from roles.storage.role import Storage
from tests.testlab.fleets.variants import lab_node
from tests.testlab.machines.container import CommandError
from tests.testlab.machines.lab import recorded_lab
from tests.testlab.machines.operator import Operator, deployed
from tests.testlab.machines.stand import Node, Stand
from tests.testlab.machines.user_mode import with_user_mode
from tests.testlab.network.netlab import LabProgram, until
from tests.testlab.run import need_program, need_root, told_commands

GATE, HOME = "gate.cellar", "laptops.us-west-2"
PUBLIC = "8.20.30.40"
_GIVEN = ("--address", "us-west-2=52.1.2.3", "--resolver", "us-west-2=10.64.32.5,10.64.64.7")
_ROLES = ("--role", "keeper", "--role", "openvpn")


@dataclass(frozen=True)
class LaptopGateways:
    """The two machines, the operator, the fleet file, and what the first apply said."""

    stand: Stand
    operator: Operator
    fleet: Path
    nodes: Mapping[str, Node]
    first: Mapping[str, Any]

    def apply(self) -> dict[str, Any]:
        """Run the page's own command, by these two roles; return what it told of each machine."""
        (command,) = (line for line in told_commands("vpn.md") if line.startswith("bedplate node apply"))
        way = ("--ssh-config", str(self.stand.ssh_config), "--user", "ubuntu", "--fleet", str(self.fleet))
        done = self.operator.bedplate(*shlex.split(command)[1:], *_ROLES, *way, "--json")
        assert done.stdout, done.stderr
        told: dict[str, Any] = json.loads(done.stdout)["nodes"]
        return told

    def vpn(self, *words: str) -> CompletedProcess[str]:
        """Run a command of `bedplate vpn` that reaches gateways."""
        return self.operator.bedplate("vpn", *words, str(self.fleet), "--ssh-config", str(self.stand.ssh_config))

    def signed(self, *words: str) -> str:
        """Run a command of `bedplate vpn` that goes well, and return what it prints."""
        done = self.operator.bedplate("vpn", *words, str(self.fleet))
        assert done.returncode == 0, done.stderr
        return done.stdout

    @property
    def sessions(self) -> list[str]:
        """The laptops that are connected at the site's gateway."""
        told = json.loads(self.vpn("status", "--json").stdout)
        served = told["gateways"][GATE]["laptops"]
        return [each["name"] for sessions in served.values() for each in sessions]

    def dial(self, device: str) -> LabProgram:
        """Start the stock client on a machine of ada's at the desk, which keeps its own routes; wait until it is in."""
        profile = self.fleet.with_name(f"{device}.ovpn")
        profile.write_text(self.signed("show", "ada", "--device", device))
        log = f"{device}.log"
        words = ("--config", str(profile), "--route-noexec", "--connect-timeout", "2")
        program = self.stand.desk.host.start("openvpn", *words, log=log)
        until(lambda: "Initialization Sequence Completed" in program.told, 60, f"{device} gets in")
        return program


@contextmanager
def laptop_gateways(folder: Path) -> Iterator[LaptopGateways]:
    """Give both gateways, applied once, with an authority, a certificate for ada's laptop, and a sync."""
    fleet = recorded_lab(folder)
    with Stand() as stand:
        nodes = {GATE: stand.boot(GATE, "192.168.40.1"), HOME: stand.boot(HOME, "10.64.0.4")}
        for node in nodes.values():
            open_device(node)
        nodes[GATE].run(f"ip address add {PUBLIC}/32 dev lo")
        stand.desk.host.run("ip", "route", "add", f"{PUBLIC}/32", "dev", "n1")
        made = LaptopGateways(stand, Operator(stand, fleet), fleet, nodes, {})
        for words in (("record", *_GIVEN), ("init",), ("add", "ada")):
            made.signed(*words)
        made = replace(made, first=made.apply())
        done = made.vpn("sync")
        assert done.returncode == 0, done.stderr
        yield made


def open_device(node: Node) -> None:
    """Open to all the device by which tunnels are made, as udev does, which a container has not."""
    node.run("chmod 666 /dev/net/tun")


LAN = Rule("ssh-from-cellar", "SSH from the cellar", IPv4Network("192.168.40.0/22"), "tcp", 22)
OPEN = ruleset((LAN,), frozenset())
KEYS_ONLY = settings(frozenset())
# A second sshd stands for a service of that port.
HIDDEN = 2200
_UNITS = ("bedplate-filter.service", firewall.UNIT)


def guarded(stand: Stand) -> Node:
    """Boot a machine, and let its filter be tried and confirmed as an apply does."""
    node = stand.boot("nas.cellar", "192.168.40.5")
    script = node.root / SCRIPT.removeprefix("/")
    script.write_text(text_of("hardened/bedplate-trial"))
    script.chmod(0o755)
    for unit in _UNITS:
        (node.root / "etc/systemd/system" / unit).write_text(text_of(f"hardened/{unit}"))
    want(node, OPEN)
    (node.root / firewall.PATH.removeprefix("/")).write_text(firewall.emergency_ruleset((LAN,)))
    node.run(f"ssh-keygen -A; systemctl enable {' '.join(_UNITS)}; {SCRIPT} begin 60")
    node.ssh(f"sudo {CONFIRM}").check_returncode()
    return node


def want(node: Node, packets: str, sshd: str = KEYS_ONLY) -> None:
    """Write what is wanted, as the role does."""
    folder = node.root / "etc/bedplate/wanted"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "filter.nft").write_text(packets)
    (folder / "sshd.conf").write_text(sshd)


def answers(node: Node, port: int) -> bool:
    """Tell whether somebody on the machine's network comes to a port of it."""
    knock = ("bash", "-c", f"exec 3<>/dev/tcp/{node.address}/{port}")
    return node.desk.run("timeout", "3", *knock).returncode == 0


BENCH, SERVER = "titan-03.cellar", "nas.cellar"


def roles_of(node: NodePlan) -> tuple[People, Storage]:
    """Return people and storage as the plan has them, with a server at the machine's homes."""
    homes = next((share.path for share in node.shares if share.mount == HOMES), None)
    return People(node.accounts, homes), Storage(node.mounts, node.shares)


@contextmanager
def stand_with_kernels() -> Iterator[Stand]:
    """Give a stand whose machines may move to kernels of their own."""
    need_root()
    for program in ("systemd-nspawn", "debootstrap", "slirp4netns", "nft", "ssh", "mke2fs"):
        need_program(program)
    with Stand(with_user_mode()) as opened:
        yield opened


def file_server(stand: Stand) -> Node:
    """Return the booted file server, its folders on a file system of their own: an overlay has no handles."""
    booted = stand.boot(SERVER, str(lab_node(SERVER).address))
    booted.run("mount -t tmpfs tmpfs /srv")
    deployed(stand, SERVER, *roles_of(lab_node(SERVER)))
    return booted


def client_of(nas: Node, stand: Stand) -> Node:
    """Return a booted machine that mounts from the file server."""
    booted = stand.boot(BENCH, str(lab_node(BENCH).address))
    booted.run(f"echo '{nas.address} nas.cellar.lab.internal' >> /etc/hosts")
    deployed(stand, BENCH, *roles_of(lab_node(BENCH)))
    return booted


def kinds(node: Node, path: str) -> list[str]:
    """Return the kinds of file systems that are mounted at a path, the lowest first; asks no server."""
    lines = node.run("cat /proc/self/mountinfo").splitlines()
    return [line.split(" - ")[1].split()[0] for line in lines if line.split()[4] == path]


_BY_PERSON = "su --login {} --command '{}'"
_OF_ROOT = ("chown ada /data/of-root", "ls /home/ada", "touch /home/of-root")
_DENIED = ("not permitted", "denied")
# How a server says that it has nothing for such a port.
_ELSEWHERE = ("No such file",)


@dataclass(frozen=True, slots=True)
class Kept:
    """A file that ada wrote at home on both machines: as the server and the client see it, and what grace is told."""

    uid: str
    there: list[str]
    here: list[str]
    to_grace: str


def by_person(name: str, script: str) -> str:
    """Return the command that runs a script as somebody who has just logged in."""
    return _BY_PERSON.format(name, script)


def written_on_both(nas: Node, bench: Node) -> Kept:
    """Let ada write a file on the client and go on with it on the server."""
    uid = str(lab_node(bench.name).accounts.uids["ada"])
    bench.run(by_person("ada", "umask 077; echo from bench > kept"))
    there = nas.run("stat --format='%u %g %a' /srv/home/ada/kept /home/ada/kept").splitlines()
    nas.run(by_person("ada", "echo from server >> kept"))
    here = bench.run(by_person("ada", "id --user; stat --format=%u kept; cat kept")).splitlines()
    return Kept(uid, there, here, _refusal(bench, by_person("grace", "cat /home/ada/kept")))


def taken_from_root(nas: Node, bench: Node) -> tuple[str, list[str]]:
    """Return who owns what a client's root wrote, and what it was told of all that it tried beyond."""
    bench.run("touch /data/of-root")
    return nas.run("stat --format=%U /srv/data/of-root").strip(), [_refusal(bench, each) for each in _OF_ROOT]


def mounted_by(port: str, nas: Node, bench: Node) -> str:
    """Return how a mount by a port of that kind, `resvport` or `noresvport`, is refused; empty where it is not."""
    bench.run("systemctl stop home.mount data.mount")
    return _refusal(
        bench, f"mount -t nfs4 -o vers=4.2,retry=0,{port} {nas.address}:/srv/data /mnt && umount /mnt", *_ELSEWHERE
    )


def _refusal(node: Node, script: str, *also: str) -> str:
    """Return how a script is refused; another failure is the test's own. Raises CommandError."""
    try:
        node.run(script)
    except CommandError as error:
        if any(word in str(error) for word in (*_DENIED, *also)):
            return str(error)
        raise
    return ""
