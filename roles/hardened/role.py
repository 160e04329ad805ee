"""The role `hardened`: packet filter, sshd, PAM, audit, sysctls, file modes and SSH host keys.

Changes of packet filter and sshd are reverted unless a new login confirms them.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from pyinfra.api.command import QuoteString, StringCommand
from pyinfra.api.facts import FactBase
from pyinfra.context import host
from pyinfra.facts.server import Arch
from pyinfra.operations import server

from bedplate.plan.firewall import FirewallRule
from bedplate.plan.nodes import NodeRole
from roles.base import (
    Changes,
    DiskSpace,
    Edit,
    ManagedFile,
    Role,
    changed,
    edit_files,
    file_text,
    put_files,
    render,
    set_line,
)
from roles.hardened import logins
from roles.hardened.firewall import FORWARDERS, HOSTS, emergency_ruleset, ruleset
from roles.hardened.logins import Confirmation
from roles.system import BoolFact, apply_sysctls, install_packages, purge_packages

_RSA = "/etc/ssh/ssh_host_rsa_key"
_MODULI = "/etc/ssh/moduli"
# Source: ssh-audit's policies require both; ssh-keygen generates RSA keys of 3072 bits by default.
_RSA_BITS = 4096
_PRIME_BITS = 3071


class KeyStrength(FactBase[Mapping[str, int]]):
    """The bits of the RSA host key (0 without a key), and the number of primes that are too short."""

    default = dict

    def command(self) -> StringCommand:
        """Read the key with ssh-keygen, and count the primes."""
        key = f"echo rsa $(ssh-keygen -l -f {_RSA}.pub 2>/dev/null | cut -d' ' -f1)"
        primes = f"echo short $(awk '!/^#/ && $5 < {_PRIME_BITS}' {_MODULI} 2>/dev/null | wc -l)"
        return StringCommand(f"{key}; {primes}")

    def process(self, output: Iterable[str]) -> Mapping[str, int]:
        """Parse a name and a number a line."""
        return {name: int(number or 0) for name, _, number in (line.partition(" ") for line in output)}


def strengthen_keys() -> None:
    """Declare that the RSA host key and the primes are long enough; the ed25519 key is never changed."""
    strength = host.get_fact(KeyStrength)
    if strength.get("rsa", 0) < _RSA_BITS:
        server.shell(name="Replace the RSA host key by one of 4096 bits", commands=[_new_key()])
    if strength.get("short", 0):
        select = f"awk '/^#/ || $5 >= {_PRIME_BITS}' {_MODULI} > {_MODULI}.new"
        server.shell(name="Remove short primes of sshd", commands=[f"{select} && mv {_MODULI}.new {_MODULI}"])


def _new_key() -> str:
    """Return the command that generates a key, replaces the old one and reloads a running sshd."""
    new = f"{_RSA}.new"
    return (
        f"rm -f {new} {new}.pub && ssh-keygen -q -t rsa -b {_RSA_BITS} -N '' -C '' -f {new}"
        f" && mv {new}.pub {_RSA}.pub && mv {new} {_RSA}"
        f" && {logins.RELOAD}"
    )


_SHM = "tmpfs\t/dev/shm\ttmpfs\trw,nosuid,nodev,noexec\t0\t0"  # a line of fstab
SHM_AT_BOOT = Edit("/etc/fstab", partial(set_line, pattern=r"\S+\s+/dev/shm\s", line=_SHM))


class ExecutableShm(BoolFact):
    """Whether /dev/shm is mounted without `noexec`."""

    def command(self) -> str:
        """Print the mount options if `noexec` is missing."""
        return "findmnt --noheadings --output OPTIONS /dev/shm | grep -vE '(^|,)noexec(,|$)' || :"


def remount_shm() -> None:
    """Declare that /dev/shm is mounted with `noexec` now."""
    if host.get_fact(ExecutableShm):
        server.shell(name="Remount /dev/shm with noexec", commands=["mount -o remount,nosuid,nodev,noexec /dev/shm"])


RULES = "/etc/audit/rules.d/50-bedplate.rules"
DAEMON = "/etc/audit/auditd.conf"
SETTINGS = file_text("hardened/auditd.conf")
# The only architecture with rules for 32-bit programs. Those of Arm are not audited: it is untested whether auditctl
# knows their system calls.
_WITH_32_BIT = "x86_64"
# A container has no audit subsystem: auditd does not run there, and nothing is loaded.
_LOAD = "if systemctl --quiet is-active auditd; then augenrules --load && systemctl kill --signal=HUP auditd; fi"


def rules(machine: str) -> str:
    """Return the audit rules for an architecture, `x86_64`."""
    return file_text("hardened/audit.rules") + (
        file_text("hardened/audit-i386.rules") if machine == _WITH_32_BIT else ""
    )


def audit_files(machine: str) -> tuple[ManagedFile, ...]:
    """Return the files of auditd."""
    return (
        ManagedFile("Write audit rules", RULES, rules(machine), "640"),
        ManagedFile("Configure auditd", DAEMON, SETTINGS, "640"),
    )


_LOGS = "/var/log"
# On Ubuntu, rsyslog runs as this group and creates logs; systemd sets the mode at each boot.
# Source: /usr/lib/tmpfiles.d/00rsyslog.conf of Ubuntu 24.04; Debian's has no such line, nor the group.
_LOG_GROUP = ("syslog", "775")
# Octal modes by path. Missing paths are not created.
REQUIRED_MODES: Mapping[str, str] = {
    "/etc/ssh/sshd_config": "600",
    "/etc/ssh/sshd_config.d": "755",
    "/etc/ssh/ssh_config": "644",
    "/etc/crontab": "600",
    "/etc/cron.hourly": "700",
    "/etc/cron.daily": "700",
    "/etc/cron.weekly": "700",
    "/etc/cron.monthly": "700",
    "/etc/cron.yearly": "700",
    "/etc/cron.d": "700",
    "/etc/passwd": "644",
    "/etc/passwd-": "644",
    "/etc/group": "644",
    "/etc/group-": "644",
    "/etc/shadow": "640",
    "/etc/shadow-": "640",
    "/etc/gshadow": "640",
    "/etc/gshadow-": "640",
    "/etc/sudoers.d": "750",
    "/etc/security/opasswd": "600",
    "/etc/login.defs": "644",
    "/root": "700",
    _LOGS: "755",
    "/home/ubuntu": "750",
    "/home/debian": "750",
    "/home/admin": "750",
}


class FileModes(FactBase[Mapping[str, tuple[str, str]]]):
    """The octal mode and the group of each existing path."""

    default = dict

    def command(self, paths: Iterable[str]) -> StringCommand:
        """Run stat once; missing paths are skipped."""
        return StringCommand("stat -c '%a %G %n'", *(QuoteString(path) for path in paths), "2>/dev/null || :")

    def process(self, output: Iterable[str]) -> Mapping[str, tuple[str, str]]:
        """Parse a mode, a group and a path a line."""
        return {path: (mode, group) for mode, group, path in (line.split(" ", 2) for line in output)}


def required_mode(path: str, group: str) -> str:
    """Return the required mode of a path, which depends on its group."""
    owner, mode = _LOG_GROUP
    return mode if (path, group) == (_LOGS, owner) else REQUIRED_MODES[path]


def set_modes() -> None:
    """Declare the required modes."""
    modes = host.get_fact(FileModes, paths=tuple(REQUIRED_MODES))
    wrong = {
        path: required_mode(path, group) for path, (mode, group) in modes.items() if mode != required_mode(path, group)
    }
    if wrong:
        # A new mode also changes the ctime, which counts as a configuration that sshd has not read.
        reload_sshd = [logins.RELOAD] if logins.MAIN in wrong else []
        commands = [*(f"chmod {mode} {path}" for path, mode in wrong.items()), *reload_sshd]
        server.shell(name="Restrict file modes", commands=commands)


# Sorts after 99-protect-links.conf of both distributions, which sets a weaker value at each boot.
SYSCTL = "/etc/sysctl.d/99-zz-bedplate-hardened.conf"


def settings(node_roles: frozenset[NodeRole], *, fabric: bool) -> str:
    """Return the sysctl settings.

    Reverse path filtering is loose on nodes that forward packets and on nodes with a fabric, which have several
    interfaces in one network: replies may leave by another interface. EFA's shared memory transport reads the memory of
    other processes of the user (libfabric, cross memory attach), so a fabric allows tracing. On nodes where users run
    containers, forwarding is not set: Docker or Podman enables it.
    """
    forwards = bool(node_roles & FORWARDERS)
    hosts = bool(node_roles & HOSTS)
    return render("hardened/sysctl.conf.j2", forwards=forwards, hosts=hosts, loose=forwards or fabric, fabric=fabric)


def kernel_files(text: str) -> tuple[ManagedFile, ...]:
    """Return the files that apply to the kernel at boot."""
    return (
        ManagedFile("Write kernel hardening sysctls", SYSCTL, text),
        ManagedFile(
            "Block unused kernel modules", "/etc/modprobe.d/bedplate-hardened.conf", file_text("hardened/modprobe.conf")
        ),
        ManagedFile(
            "Disable core dumps", "/etc/systemd/coredump.conf.d/bedplate.conf", file_text("hardened/coredump.conf")
        ),
    )


def values(text: str) -> Iterator[tuple[str, str]]:
    """Yield the keys and values of a sysctl file."""
    for line in text.splitlines():
        key, equals, value = line.partition(" = ")
        if equals and not key.startswith("#"):
            yield key, value


# Part of Canonical's images for AWS. It adds a command line option to sshd, which no file overrides: sshd asks AWS for
# keys, and any user with the IAM permission can log in to any account.
_OTHER_ACCESS = ("ec2-instance-connect",)
_PACKAGES = (
    "apparmor",
    "apparmor-utils",
    "auditd",
    "debsums",
    "libcap2-bin",
    "libpam-pwquality",
    "nftables",
    "openssh-server",
)
# A running sshd keeps its command line until a restart, which does not end sessions.
_RESTART_SSHD = (
    "if systemctl --quiet is-active ssh.service; then systemctl daemon-reload && systemctl restart ssh.service; fi"
)


@dataclass(frozen=True, slots=True)
class Hardened(Role):
    """A hardened node: `rules` are its inbound firewall rules, `administrators` the names of people with all rights.

    `fabric`: it has EFA, often with several interfaces in one network. `to_pods`: what it forwards to pods.
    """

    rules: tuple[FirewallRule, ...]
    node_roles: frozenset[NodeRole]
    fabric: bool = False
    administrators: tuple[str, ...] = ()
    to_pods: tuple[FirewallRule, ...] = ()
    name: ClassVar[str] = "hardened"
    space: ClassVar[DiskSpace] = DiskSpace(programs=80, state=16)

    def install(self) -> None:
        """Install the packages of hardening, and remove other access to accounts."""
        install_packages("Install hardening packages", _PACKAGES)
        purged = purge_packages("Remove EC2 Instance Connect", _OTHER_ACCESS)
        server.shell(name="Restart sshd without EC2 Instance Connect", commands=[_RESTART_SSHD], _if=purged.did_change)

    def configure(self) -> Changes:
        """Write the configuration; return the changes of auditd."""
        put_files(*kernel_files(self._settings), *logins.login_files(), logins.README)
        edit_files(*logins.EDITS, SHM_AT_BOOT)
        logins.configure_pam()
        set_modes()
        strengthen_keys()
        self._confirmation.write()
        return put_files(*audit_files(host.get_fact(Arch)))

    def activate(self, changes: Changes) -> None:
        """Activate the configuration; packet filter and sshd last."""
        # The unit of auditd refuses a restart, and a reload loses no events.
        server.shell(name="Reload audit rules", commands=[_LOAD], _if=changed(changes))
        apply_sysctls("Apply kernel hardening sysctls", SYSCTL, dict(values(self._settings)))
        remount_shm()
        self._confirmation.begin()

    @property
    def _settings(self) -> str:
        return settings(self.node_roles, fabric=self.fabric)

    @property
    def _confirmation(self) -> Confirmation:
        packets = ruleset(self.rules, self.node_roles, self.to_pods)
        sshd = logins.settings(self.node_roles, self.administrators)
        return Confirmation(packets, sshd, emergency_ruleset(self.rules))
