"""The role `hardened`."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from pyinfra.api.command import QuoteString, StringCommand
from pyinfra.api.facts import FactBase
from pyinfra.context import host
from pyinfra.facts.server import Arch
from pyinfra.operations import server
from pyinfra.operations.util import any_changed

from bedplate.plan.firewall import Rule
from bedplate.plan.nodes import Duty
from roles.base import Changes, DiskSpace, Role
from roles.files import Edit, Shipped, edited, rendered, ship, text_of, with_line
from roles.hardened import firewall, logins
from roles.hardened import firewall as packet_filter
from roles.hardened.firewall import FORWARDERS, HOSTS
from roles.hardened.logins import Trial
from roles.system import hold, install, purge

_RSA = "/etc/ssh/ssh_host_rsa_key"
_MODULI = "/etc/ssh/moduli"
# Source: ssh-audit's policies ask for both; RSA of 3072 bits is what ssh-keygen makes by itself.
_RSA_BITS = 4096
_PRIME_BITS = 3071


class Strength(FactBase[Mapping[str, int]]):
    """The bits of the RSA host key, none where there is no key, and how many primes are too short."""

    default = dict

    def command(self) -> StringCommand:
        """Ask ssh-keygen, and count."""
        key = f"echo rsa $(ssh-keygen -l -f {_RSA}.pub 2>/dev/null | cut -d' ' -f1)"
        primes = f"echo short $(awk '!/^#/ && $5 < {_PRIME_BITS}' {_MODULI} 2>/dev/null | wc -l)"
        return StringCommand(f"{key}; {primes}")

    def process(self, output: Iterable[str]) -> Mapping[str, int]:
        """Read a word and a number a line."""
        return {name: int(number or 0) for name, _, number in (line.partition(" ") for line in output)}


def prove() -> None:
    """Declare that the RSA key and the primes are long enough; the key of type ed25519 is never touched."""
    found = host.get_fact(Strength)
    if found.get("rsa", 0) < _RSA_BITS:
        server.shell(name="Host key of 4096 bits", commands=[_new_key()])
    if found.get("short", 0):
        shortened = f"awk '/^#/ || $5 >= {_PRIME_BITS}' {_MODULI} > {_MODULI}.new"
        server.shell(name="No short primes", commands=[f"{shortened} && mv {_MODULI}.new {_MODULI}"])


def _new_key() -> str:
    """Return what makes a key, puts it in the old one's place, and has a running sshd read it."""
    new = f"{_RSA}.new"
    return (
        f"rm -f {new} {new}.pub && ssh-keygen -q -t rsa -b {_RSA_BITS} -N '' -C '' -f {new}"
        f" && mv {new}.pub {_RSA}.pub && mv {new} {_RSA}"
        f" && {logins.RELOAD}"
    )


_LINE = "tmpfs\t/dev/shm\ttmpfs\trw,nosuid,nodev,noexec\t0\t0"  # a line of fstab
AT_BOOT = Edit("/etc/fstab", partial(with_line, instead_of=r"\S+\s+/dev/shm\s", line=_LINE))


class Remountable(FactBase[bool]):
    """Whether shared memory is mounted otherwise than fstab says."""

    default = bool

    def command(self) -> str:
        """Look for an option that is missing."""
        return "findmnt --noheadings --output OPTIONS /dev/shm | grep -vE '(^|,)noexec(,|$)' || :"

    def process(self, output: Iterable[str]) -> bool:
        """Take any line for a mount without the option."""
        return any(line.strip() for line in output)


def remount() -> None:
    """Declare that shared memory holds no programs, now as after a boot."""
    if host.get_fact(Remountable):
        server.shell(name="No programs in shared memory", commands=["mount -o remount,nosuid,nodev,noexec /dev/shm"])


RULES = "/etc/audit/rules.d/50-bedplate.rules"
DAEMON = "/etc/audit/auditd.conf"
SETTINGS = text_of("hardened/auditd.conf")
# What `uname -m` says where programs of two architectures run. 32-bit ones of Arm's, where a processor still runs them,
# are not written down: nobody could try whether auditctl knows their calls.
_OF_TWO = "x86_64"
# A container has no audit of its own: there auditd does not run, and nothing is loaded.
_LOAD = "if systemctl --quiet is-active auditd; then augenrules --load && systemctl kill --signal=HUP auditd; fi"


def rules(machine: str) -> str:
    """Return what is written down on a machine of this architecture, `x86_64`."""
    return text_of("hardened/audit.rules") + (text_of("hardened/audit-i386.rules") if machine == _OF_TWO else "")


def shipped(machine: str) -> tuple[Shipped, ...]:
    """Return the files that the daemon reads."""
    return (
        Shipped("What is audited", RULES, rules(machine), "640"),
        Shipped("How it is kept", DAEMON, SETTINGS, "640"),
    )


def load(changes: Changes) -> None:
    """Have the daemon read what has changed; auditd refuses to be restarted, and loses nothing this way."""
    server.shell(name="Audit takes its rules", commands=[_LOAD], _if=any_changed(*changes))


_LOGS = "/var/log"
# Where rsyslog is not root it makes logs by its group, and systemd sets this at each boot.
# Source: /usr/lib/tmpfiles.d/00rsyslog.conf of Ubuntu 24.04; Debian's has no such line, nor the group.
_LOGS_OF_A_GROUP = ("syslog", "775")
# By path, in octal. What is missing stays missing.
WANTED: Mapping[str, str] = {
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


class Modes(FactBase[Mapping[str, tuple[str, str]]]):
    """The mode in octal and the group of each path that there is: one round trip."""

    default = dict

    def command(self, paths: Iterable[str]) -> StringCommand:
        """Ask for all; what is missing says nothing."""
        return StringCommand("stat -c '%a %G %n'", *(QuoteString(path) for path in paths), "2>/dev/null || :")

    def process(self, output: Iterable[str]) -> Mapping[str, tuple[str, str]]:
        """Read a mode, a group and a path a line."""
        return {path: (mode, group) for mode, group, path in (line.split(" ", 2) for line in output)}


def wanted(path: str, group: str) -> str:
    """Return the mode that a path is to have, given whose group it is."""
    owner, mode = _LOGS_OF_A_GROUP
    return mode if (path, group) == (_LOGS, owner) else WANTED[path]


def tighten() -> None:
    """Set the modes that are not what they are to be."""
    found = host.get_fact(Modes, paths=tuple(WANTED))
    due = {path: wanted(path, group) for path, (mode, group) in found.items() if mode != wanted(path, group)}
    if due:
        # A mode is a change, too, of which nobody can tell that it was no more.
        anew = [logins.RELOAD] if logins.MAIN in due else []
        server.shell(name="File modes", commands=[*(f"chmod {mode} {path}" for path, mode in due.items()), *anew])


# After 99-protect-links.conf of both distributions, which loosens one of these at each boot.
SYSCTL = "/etc/sysctl.d/99-zz-bedplate-hardened.conf"


def settings(duties: frozenset[Duty], *, fabric: bool) -> str:
    """Return the settings as sysctl reads them.

    Answers may leave by another interface than questions came in by where packets are forwarded, and where a machine
    has several interfaces on one network, as those with a fabric have: the filter of reverse paths is loose there.
    Where people run containers, forwarding is left as it is: off, until Docker or Podman turns it on.
    """
    forwards = bool(duties & FORWARDERS)
    hosts = bool(duties & HOSTS)
    return rendered("hardened/sysctl.conf.j2", forwards=forwards, hosts=hosts, loose=forwards or fabric)


def kernel_shipped(text: str) -> tuple[Shipped, ...]:
    """Return the files that the kernel's loaders read at boot."""
    return (
        Shipped("Settings of the kernel against strangers", SYSCTL, text),
        Shipped("Modules refused", "/etc/modprobe.d/bedplate-hardened.conf", text_of("hardened/modprobe.conf")),
        Shipped("No core dumps", "/etc/systemd/coredump.conf.d/bedplate.conf", text_of("hardened/coredump.conf")),
    )


def values(text: str) -> Iterator[tuple[str, str]]:
    """Yield each setting of a text with its value."""
    for line in text.splitlines():
        key, equals, value = line.partition(" = ")
        if equals and not key.startswith("#"):
            yield key, value


def enforce(text: str) -> None:
    """Declare that the running kernel has them too."""
    hold("Kernel refuses strangers", SYSCTL, dict(values(text)))


# Canonical's images for AWS bring it: by an option of sshd's command line, which no file changes, it asks AWS for
# keys, so that whoever IAM allows comes in as anybody.
_OTHER_WAYS_IN = ("ec2-instance-connect",)
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
# A daemon that runs keeps its command line; sessions that stand stay.
_SSHD_ANEW = (
    "if systemctl --quiet is-active ssh.service; then systemctl daemon-reload && systemctl restart ssh.service; fi"
)


@dataclass(frozen=True, slots=True)
class Hardened(Role):
    """A node that lets in whom the plan names, by key, and remembers who did what.

    `fabric` says that it may have several interfaces on one network.
    """

    doors: tuple[Rule, ...]
    duties: frozenset[Duty]
    fabric: bool = False
    name: ClassVar[str] = "hardened"
    space: ClassVar[DiskSpace] = DiskSpace(programs=80, state=16)

    def install(self) -> None:
        """Install the guards of the system, and take away what lets others in past them."""
        install("Guards", _PACKAGES)
        purged = purge("No keys but the fleet's", _OTHER_WAYS_IN)
        server.shell(name="sshd without its former options", commands=[_SSHD_ANEW], _if=any_changed(purged))

    def configure(self) -> Changes:
        """Write what is wanted; return what auditd reads."""
        ship(*kernel_shipped(self._settings), *logins.shipped(), logins.README)
        edited(*logins.EDITS, AT_BOOT)
        logins.guard()
        tighten()
        prove()
        self._trial.write()
        return ship(*shipped(host.get_fact(Arch)))

    def activate(self, changes: Changes) -> None:
        """Put it in force, the ways in as the last."""
        load(changes)
        enforce(self._settings)
        remount()
        self._trial.begin()

    @property
    def _settings(self) -> str:
        return settings(self.duties, fabric=self.fabric)

    @property
    def _trial(self) -> Trial:
        packets = packet_filter.ruleset(self.doors, self.duties)
        return Trial(packets, logins.settings(self.duties), firewall.emergency_ruleset(self.doors))
