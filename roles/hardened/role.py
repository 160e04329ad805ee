"""The role `hardened`."""

from dataclasses import dataclass
from typing import ClassVar

from pyinfra.context import host
from pyinfra.facts.server import Arch
from pyinfra.operations import server
from pyinfra.operations.util import any_changed

from bedplate.plan.door import Rule
from bedplate.plan.node import Duty
from roles.base import Changes, DiskSpace, Role
from roles.hardened import auditing, emergency, identity, kernel, logins, memory, modes, passwords, sshd
from roles.hardened import filter as packet_filter
from roles.hardened.trial import Trial
from roles.packages import install, purge
from roles.shipped import ship
from roles.texts import edited

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
        ship(*kernel.shipped(self._settings), *logins.shipped(), sshd.README)
        edited(*logins.EDITS, memory.AT_BOOT)
        passwords.guard()
        modes.tighten()
        identity.prove()
        self._trial.write()
        return ship(*auditing.shipped(host.get_fact(Arch)))

    def activate(self, changes: Changes) -> None:
        """Put it in force, the ways in as the last."""
        auditing.load(changes)
        kernel.enforce(self._settings)
        memory.remount()
        self._trial.begin()

    @property
    def _settings(self) -> str:
        return kernel.settings(self.duties, fabric=self.fabric)

    @property
    def _trial(self) -> Trial:
        packets = packet_filter.ruleset(self.doors, self.duties)
        return Trial(packets, sshd.settings(self.duties), emergency.ruleset(self.doors))
