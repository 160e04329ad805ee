"""The role `baseline`: clock, host name, locale, limits, sysctls, no swap, and apt on every node."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address
from typing import ClassVar

from pyinfra.context import host
from pyinfra.facts.files import Directory, FindInFile
from pyinfra.facts.server import LinuxName
from pyinfra.operations import files, server, systemd

from bedplate.plan.nodes import NodePlan, NodeRole, Platform
from roles.base import Changes, DiskSpace, ManagedFile, Role, changed, file_text, put_files, render
from roles.baseline.apt import sign_sources, upgrade_files
from roles.system import SYSTEMD_SYSCTL, BoolFact, Container, Settable, install_packages

# Amazon Time Sync, a link-local address. Source: EC2 user guide, "Set the time".
AMAZON = "169.254.169.123"
POOLS = {"Debian": "2.debian.pool.ntp.org", "Ubuntu": "ntp.ubuntu.com"}
SERVICE = "chrony"
CLOCK = "/etc/chrony/chrony.conf"


def chrony_file(platform: Platform, distribution: str) -> ManagedFile:
    """Return the configuration of chrony."""
    values = {"amazon": AMAZON if platform is Platform.CLOUD else None, "pool": POOLS[distribution]}
    return ManagedFile("Configure chrony", CLOCK, render("baseline/chrony.conf.j2", **values))


def run_chrony(changes: Changes) -> None:
    """Declare that chrony is running and enabled; a container cannot set the clock and only enables it."""
    runs = not host.get_fact(Container)
    systemd.service(name="Start chrony", service=SERVICE, running=True if runs else None, enabled=True)
    if runs:
        systemd.service(name="Restart chrony", service=SERVICE, restarted=True, _if=changed(changes, CLOCK))


_CLOUD_INIT = "/etc/cloud/cloud.cfg.d"
_KEEP = "# Written by bedplate.\npreserve_hostname: true\nmanage_etc_hosts: false\n"


def keep_names() -> None:
    """Declare that cloud-init, if installed, does not change the host name and /etc/hosts."""
    if host.get_fact(Directory, path=_CLOUD_INIT):
        put_files(ManagedFile("Keep cloud-init from changing the host name", f"{_CLOUD_INIT}/60_bedplate.cfg", _KEEP))


def motd_files(node: NodePlan) -> tuple[ManagedFile, ...]:
    """Return the message of the day; Ubuntu's news are disabled."""
    roles = " and ".join(sorted(role.value for role in node.roles)) or "machine"
    return (
        ManagedFile("Write the message of the day", "/etc/motd", render("baseline/motd.j2", node=node, roles=roles)),
        ManagedFile("Disable Ubuntu's news at login", "/etc/default/motd-news", "ENABLED=0\n"),
    )


# Debian's address for the host name of a machine without a fixed address: Debian Reference, section 5.1.1.
_LOCAL = IPv4Address("127.0.1.1")


def hosts_file(node: NodePlan) -> ManagedFile:
    """Return /etc/hosts of a node."""
    return ManagedFile("Write /etc/hosts", "/etc/hosts", "".join(f"{line}\n" for line in _host_lines(node)))


def _host_lines(node: NodePlan) -> Iterator[str]:
    yield "127.0.0.1 localhost"
    yield f"{node.address or _LOCAL} {node.full_name} {node.name} {node.host}"
    yield "::1 localhost ip6-localhost ip6-loopback"
    for name, addresses in sorted(node.hosts.items()):
        if name != node.full_name:
            yield from (f"{address} {name} {name.removesuffix(f'.{node.domain}')}" for address in addresses)


_SYSCTLS = "/etc/sysctl.d/60-bedplate.conf"


@dataclass(frozen=True, slots=True)
class Setting:
    """A sysctl, its value as the kernel prints it, and why it differs from the default."""

    key: str
    value: str
    reason: str


EVERYWHERE = (
    Setting("kernel.panic", "10", "reboot 10 s after a panic"),
    Setting("net.core.rmem_max", "67108864", "one connection can use 10 Gbit/s at 50 ms"),
    Setting("net.core.wmem_max", "67108864", "as above"),
    Setting("net.ipv4.tcp_rmem", "4096 131072 67108864", "as above; the default size is unchanged"),
    Setting("net.ipv4.tcp_wmem", "4096 65536 67108864", "as above"),
    Setting("net.ipv4.tcp_mtu_probing", "1", "tunnels have a smaller MTU than the VPC (9001), and may drop ICMP"),
)
AT_WORK = (
    Setting("fs.inotify.max_user_instances", "8192", "editors and notebooks of many users on one machine"),
    Setting("fs.inotify.max_user_watches", "1048576", "as above"),
    Setting("kernel.numa_balancing", "0", "page migration is useless for memory that a GPU pins"),
    Setting("vm.max_map_count", "1048576", "data sets of thousands of memory-mapped files"),
    Setting("vm.swappiness", "1", "no swap: reclaim the page cache first"),
    Setting("vm.zone_reclaim_mode", "0", "memory of another NUMA node is faster than a new read of a data set"),
)


def kernel_file(settings: Iterable[Setting]) -> ManagedFile:
    """Return the sysctl.d file."""
    lines = "".join(f"# {setting.reason}\n{setting.key} = {setting.value}\n" for setting in settings)
    return ManagedFile("Write sysctl settings", _SYSCTLS, f"# Written by bedplate.\n{lines}")


def set_kernel(settings: Sequence[Setting], changes: Changes) -> None:
    """Declare that the kernel has these values, after a change of the file or of the running kernel."""
    values = host.get_fact(Settable, keys=tuple(setting.key for setting in settings))
    drifted = any(values.get(setting.key, setting.value) != setting.value for setting in settings)
    condition = (lambda: True) if drifted else changed(changes, _SYSCTLS)
    server.shell(name="Reload sysctl settings", commands=[f"{SYSTEMD_SYSCTL} {_SYSCTLS}"], _if=condition)


JOURNALD = "systemd-journald.service"
JOURNAL = ManagedFile(
    "Limit the size of the journal",
    "/etc/systemd/journald.conf.d/60-bedplate.conf",
    file_text("baseline/journald.conf"),
)
LIMITS = ManagedFile(
    "Write limits of login sessions", "/etc/security/limits.d/60-bedplate.conf", file_text("baseline/limits.conf")
)
MANAGER = ManagedFile(
    "Write limits of services", "/etc/systemd/system.conf.d/60-bedplate.conf", file_text("baseline/system.conf")
)


# The locale that macOS and most distributions send with an SSH session; C.UTF-8 needs no generation.
_LOCALE = "en_US.UTF-8"


def generate_locale() -> None:
    """Declare that the usual locale of laptops exists; it takes 4 s of processor, so images have it."""
    locales = put_files(ManagedFile("Write the list of locales", "/etc/locale.gen", f"{_LOCALE} UTF-8\n"))
    server.shell(name="Generate locales", commands=["locale-gen"], _if=changed(locales))


def set_locale() -> None:
    """Declare the locale C.UTF-8 and the time zone UTC."""
    server.timezone(name="Set the time zone to UTC", timezone="Etc/UTC")
    put_files(ManagedFile("Set the locale", "/etc/locale.conf", "LANG=C.UTF-8\n"))
    # PAM reads this path, systemd 253 and later the file above. Ubuntu 24.04 has this link; Debian 12 has a file.
    files.link(
        name="Set the locale of sessions",
        path="/etc/default/locale",
        target="../locale.conf",
        force=True,
        force_backup=False,
    )


_FSTAB = "/etc/fstab"
_SWAP = r"^\([^#[:space:]]\+[[:space:]]\+[^[:space:]]\+[[:space:]]\+swap[[:space:]].*\)$"


class Swaps(BoolFact):
    """Whether swap is active."""

    def command(self) -> str:
        """Read the kernel's table without its header."""
        return "tail -n +2 /proc/swaps"


def disable_swap_at_boot() -> None:
    """Declare that no boot enables swap."""
    files.link(name="Mask swap.target", path="/etc/systemd/system/swap.target", target="/dev/null")
    if host.get_fact(FindInFile, path=_FSTAB, pattern=_SWAP):
        files.replace(name="Comment out swap in /etc/fstab", path=_FSTAB, text=_SWAP, replace=r"# \1")


def turn_off_swap() -> None:
    """Declare that swap is off now; a container cannot change the swap of its host."""
    if host.get_fact(Swaps) and not host.get_fact(Container):
        server.shell(name="Turn off swap", commands=["swapoff --all"])


NETWORKD = ManagedFile(
    "Configure systemd-networkd", "/etc/systemd/networkd.conf.d/60-bedplate.conf", file_text("baseline/networkd.conf")
)


RESOLVED = "/etc/systemd/resolved.conf.d/60-bedplate.conf"


def resolved_file(node: NodePlan) -> ManagedFile:
    """Return the configuration of systemd-resolved: the fleet's resolvers answer names in its domain."""
    servers = " ".join(map(str, node.resolvers))
    lines = f"DNS={servers}\nDomains=~{node.domain}\n" if servers else ""
    return ManagedFile("Configure systemd-resolved", RESOLVED, f"# Written by bedplate.\n[Resolve]\n{lines}")


def restart_network_daemons(changes: Changes) -> None:
    """Restart the network daemons that run after a change of their files; addresses survive a restart."""
    for unit, path in {"systemd-networkd": NETWORKD.path, "systemd-resolved": RESOLVED}.items():
        if path in changes:
            # `try-restart` fails for a missing unit; Debian has no systemd-resolved.
            restart = f"if systemctl --quiet is-active {unit}; then systemctl restart {unit}; fi"
            server.shell(name=f"Restart {unit}", commands=[restart], _if=changed(changes, path))


PACKAGES = ("ca-certificates", "chrony", "locales", "needrestart", "unattended-upgrades")


@dataclass(frozen=True, slots=True)
class Baseline(Role):
    """The base configuration of a node."""

    node: NodePlan
    name: ClassVar[str] = "baseline"
    space: ClassVar[DiskSpace] = DiskSpace(programs=130, state=140)

    @property
    def settings(self) -> tuple[Setting, ...]:
        """The sysctls: more on nodes that run users' programs."""
        runs_work = self.node.roles & {NodeRole.WORKBENCH, NodeRole.WORKER}
        return (*EVERYWHERE, *AT_WORK) if runs_work else EVERYWHERE

    def install(self) -> None:
        """Secure the apt sources and configure upgrades, then install packages and the locale."""
        sign_sources()
        put_files(*upgrade_files())
        install_packages("Install base packages", PACKAGES)
        generate_locale()

    def configure(self) -> Changes:
        """Write locale, names, limits and the configuration of daemons; return the latter."""
        set_locale()
        keep_names()
        disable_swap_at_boot()
        host_name = ManagedFile("Write /etc/hostname", "/etc/hostname", f"{self.node.host}\n")
        put_files(hosts_file(self.node), *motd_files(self.node), LIMITS, host_name)
        clock = chrony_file(self.node.platform, host.get_fact(LinuxName))
        resolved = (resolved_file(self.node),) if self.node.platform is Platform.METAL else ()
        return put_files(clock, JOURNAL, kernel_file(self.settings), MANAGER, NETWORKD, *resolved)

    def activate(self, changes: Changes) -> None:
        """Set the host name, and restart or reload daemons whose configuration has changed."""
        server.hostname(name="Set the host name", hostname=self.node.host)
        run_chrony(changes)
        systemd.service(
            name="Restart systemd-journald", service=JOURNALD, restarted=True, _if=changed(changes, JOURNAL.path)
        )
        set_kernel(self.settings, changes)
        restart_network_daemons(changes)
        turn_off_swap()
