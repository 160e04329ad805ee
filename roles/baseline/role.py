"""The role `baseline`."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address
from typing import ClassVar

from pyinfra.api.facts import FactBase
from pyinfra.context import host
from pyinfra.facts.files import Directory, FindInFile
from pyinfra.facts.server import Hostname, LinuxName
from pyinfra.operations import files, server, systemd
from pyinfra.operations.util import any_changed

from bedplate.plan.nodes import Duty, Ground, NodePlan
from roles.base import NO_CHANGES, Changes, DiskSpace, Role
from roles.baseline.apt import sign_sources, upgrades
from roles.files import Shipped, rendered, ship, text_of
from roles.system import Container, Settable, install

# Amazon Time Sync, one hop from every instance and in no routing table. Source: EC2 user guide, "Set the time".
AMAZON = "169.254.169.123"
POOLS = {"Debian": "2.debian.pool.ntp.org", "Ubuntu": "ntp.ubuntu.com"}
SERVICE = "chrony"


def clock_file(ground: Ground, distribution: str) -> Shipped:
    """Return chrony's settings."""
    values = {"amazon": AMAZON if ground is Ground.CLOUD else None, "pool": POOLS[distribution]}
    return Shipped("Clock", "/etc/chrony/chrony.conf", rendered("baseline/chrony.conf.j2", **values))


def keep_time(changes: Changes) -> None:
    """Declare that chrony runs with these settings; a container may not set its host's clock."""
    runs = not host.get_fact(Container)
    systemd.service(name="Clock is kept", service=SERVICE, running=True if runs else None, enabled=True)
    if runs:
        systemd.service(name="Clock reads its settings", service=SERVICE, restarted=True, _if=any_changed(*changes))


_FOLDER = "/etc/cloud/cloud.cfg.d"
_KEEP = "# Written by bedplate.\npreserve_hostname: true\nmanage_etc_hosts: false\n"


def keep_names() -> Changes:
    """Declare that cloud-init leaves names alone, where there is one."""
    if not host.get_fact(Directory, path=_FOLDER):
        return NO_CHANGES
    return ship(Shipped("Names stay at a boot", f"{_FOLDER}/60_bedplate.cfg", _KEEP))


def greeting(node: NodePlan) -> tuple[Shipped, ...]:
    """Return the message of the day; Ubuntu's own news are off."""
    what = " and ".join(sorted(duty.value for duty in node.duties)) or "machine"
    return (
        Shipped("Message of the day", "/etc/motd", rendered("baseline/motd.j2", node=node, what=what)),
        Shipped("No news of the distribution", "/etc/default/motd-news", "ENABLED=0\n"),
    )


# Debian's own address for a machine's name where no fixed one is known: Debian Reference, section 5.1.1.
_OWN = IPv4Address("127.0.1.1")


def hosts(node: NodePlan, own_name: str) -> Shipped:
    """Return /etc/hosts of a node whose host name is `own_name`."""
    return Shipped("Hosts", "/etc/hosts", "".join(f"{line}\n" for line in _lines(node, own_name)))


def _lines(node: NodePlan, own_name: str) -> Iterator[str]:
    yield "127.0.0.1 localhost"
    names = dict.fromkeys((node.full_name, node.name, node.host, own_name))
    yield f"{node.address or _OWN} {' '.join(names)}"
    yield "::1 localhost ip6-localhost ip6-loopback"
    for name, address in sorted(node.hosts.items()):
        if name != node.full_name:
            yield f"{address} {name} {name.removesuffix(f'.{node.domain}')}"


_FILE = "/etc/sysctl.d/60-bedplate.conf"


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting, its value as the kernel shows it, and why it is not the kernel's own."""

    key: str
    value: str
    reason: str


EVERYWHERE = (
    Setting("kernel.panic", "10", "a machine that panicked comes back by itself"),
    Setting("net.core.rmem_max", "67108864", "one connection fills a link of 10 Gbit/s over 50 ms"),
    Setting("net.core.wmem_max", "67108864", "as above"),
    Setting("net.ipv4.tcp_rmem", "4096 131072 67108864", "as above; small connections stay small"),
    Setting("net.ipv4.tcp_wmem", "4096 65536 67108864", "as above"),
    Setting("net.ipv4.tcp_mtu_probing", "1", "tunnels carry less than the VPC's 9001 bytes, and may drop what says so"),
)
AT_WORK = (
    Setting("fs.inotify.max_user_instances", "8192", "editors and notebooks of many people on one machine"),
    Setting("fs.inotify.max_user_watches", "1048576", "as above"),
    Setting("kernel.numa_balancing", "0", "moving pages under a GPU's pinned memory costs and gains nothing"),
    Setting("vm.max_map_count", "1048576", "data sets mapped as thousands of files"),
    Setting("vm.swappiness", "1", "there is no swap, and page cache is what goes first"),
    Setting("vm.zone_reclaim_mode", "0", "remote memory is faster than reading a data set again"),
)


def kernel_file(settings: Iterable[Setting]) -> Shipped:
    """Return the file that sets them at each boot."""
    lines = "".join(f"# {each.reason}\n{each.key} = {each.value}\n" for each in settings)
    return Shipped("Kernel settings", _FILE, f"# Written by bedplate.\n{lines}")


def set_kernel(settings: Sequence[Setting], changes: Changes) -> None:
    """Declare that the settings hold now, whether the file or the running kernel was changed."""
    found = host.get_fact(Settable, keys=tuple(each.key for each in settings))
    drifted = any(found.get(each.key, each.value) != each.value for each in settings)
    answer = (lambda: True) if drifted else any_changed(*changes)
    server.shell(name="Kernel settings hold", commands=[f"/usr/lib/systemd/systemd-sysctl {_FILE}"], _if=answer)


JOURNALD = "systemd-journald.service"
JOURNAL = Shipped(
    "Limits of the journal", "/etc/systemd/journald.conf.d/60-bedplate.conf", text_of("baseline/journald.conf")
)
LIMITS = Shipped("Limits of sessions", "/etc/security/limits.d/60-bedplate.conf", text_of("baseline/limits.conf"))
MANAGER = Shipped("Limits of services", "/etc/systemd/system.conf.d/60-bedplate.conf", text_of("baseline/system.conf"))


# What macOS and most distributions send with an SSH session; C.UTF-8 needs no making.
_KNOWN = "en_US.UTF-8"


def speak() -> Changes:
    """Declare messages in plain English, the most usual locale of laptops beside it, and times in UTC."""
    made = ship(Shipped("Locales", "/etc/locale.gen", f"{_KNOWN} UTF-8\n"))
    server.shell(name="Make the locales", commands=["locale-gen"], _if=any_changed(*made))
    server.timezone(name="Times in UTC", timezone="Etc/UTC")
    language = ship(Shipped("Language", "/etc/locale.conf", "LANG=C.UTF-8\n"))
    # PAM reads this path, systemd 253 and later the file above. Ubuntu 24.04 has this link; Debian 12 has a file.
    link = files.link(
        name="Language of sessions", path="/etc/default/locale", target="../locale.conf", force=True, force_backup=False
    )
    return (*made, *language, link)


_FSTAB = "/etc/fstab"
_SWAP = r"^\([^#[:space:]]\+[[:space:]]\+[^[:space:]]\+[[:space:]]\+swap[[:space:]].*\)$"


class Swaps(FactBase[tuple[str, ...]]):
    """What the kernel swaps to now."""

    default = tuple

    def command(self) -> str:
        """Read the kernel's table, without its heading."""
        return "tail -n +2 /proc/swaps"

    def process(self, output: Iterable[str]) -> tuple[str, ...]:
        """Keep the names."""
        return tuple(line.split()[0] for line in output if line.strip())


def without_swap_at_boot() -> Changes:
    """Declare that no boot turns swap on."""
    masked = files.link(name="No swap at boot", path="/etc/systemd/system/swap.target", target="/dev/null")
    if not host.get_fact(FindInFile, path=_FSTAB, pattern=_SWAP):
        return [masked]
    return [masked, files.replace(name="No swap in fstab", path=_FSTAB, text=_SWAP, replace=r"# \1")]


def swap_off() -> None:
    """Declare that nothing is swapped to now; a container's host keeps its own."""
    if host.get_fact(Swaps) and not host.get_fact(Container):
        server.shell(name="No swap", commands=["swapoff --all"])


NETWORKD = Shipped(
    "Settings of systemd-networkd", "/etc/systemd/networkd.conf.d/60-bedplate.conf", text_of("baseline/networkd.conf")
)


def restart_networkd(changes: Changes) -> None:
    """Declare that systemd-networkd, where it runs, has read its settings; addresses stay over a restart."""
    restart = "systemctl try-restart systemd-networkd.service"
    server.shell(name="Restart systemd-networkd", commands=[restart], _if=any_changed(*changes))


PACKAGES = ("ca-certificates", "chrony", "locales", "needrestart", "unattended-upgrades")


@dataclass(frozen=True, slots=True)
class Baseline(Role):
    """The ground of every node."""

    node: NodePlan
    name: ClassVar[str] = "baseline"
    space: ClassVar[DiskSpace] = DiskSpace(programs=130, state=140)

    @property
    def settings(self) -> tuple[Setting, ...]:
        """The kernel's settings: more where people's work runs."""
        works = self.node.duties & {Duty.WORKBENCH, Duty.WORKER}
        return (*EVERYWHERE, *AT_WORK) if works else EVERYWHERE

    @property
    def _own_name(self) -> str:
        """The host name: what EC2 gave to a worker, once it has it, is longer than the plan's."""
        told: str = host.get_fact(Hostname) if self.node.is_named_by_ec2 else ""
        return told if told.startswith(f"{self.node.host}.") else self.node.host

    def install(self) -> None:
        """Install what keeps time and upgrades; whom packages are taken from, and who restarts, is settled before."""
        sign_sources()
        ship(*upgrades())
        install("Packages of every node", PACKAGES)

    def configure(self) -> Changes:
        """Write what the node is called, its clock, its limits; return the settings that daemons have read before."""
        speak()
        keep_names()
        without_swap_at_boot()
        ship(hosts(self.node, self._own_name), *greeting(self.node), LIMITS)
        if not self.node.is_named_by_ec2:
            ship(Shipped("Host name of the next boot", "/etc/hostname", f"{self.node.host}\n"))
        clock = clock_file(self.node.ground, host.get_fact(LinuxName))
        return ship(clock, JOURNAL, kernel_file(self.settings), MANAGER, NETWORKD)

    def activate(self, changes: Changes) -> None:
        """Take the name at once, and let daemons read what has changed."""
        if not self.node.is_named_by_ec2:
            server.hostname(name="Host name", hostname=self.node.host)
        clock, journal, settings, manager, network = (changes[at : at + 1] for at in range(5))
        keep_time(clock)
        systemd.service(name="Journal takes its limits", service=JOURNALD, restarted=True, _if=any_changed(*journal))
        set_kernel(self.settings, settings)
        systemd.daemon_reload(name="Services take their limits", _if=any_changed(*manager))
        restart_networkd(network)
        swap_off()
