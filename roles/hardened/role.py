"""The role `hardened`."""

from dataclasses import dataclass
from typing import ClassVar

from bedplate.plan.door import Rule
from bedplate.plan.node import Duty
from roles.base import Changes, Role
from roles.hardened import auditing, identity, kernel, logins, memory, modes, passwords, sshd
from roles.hardened import filter as packet_filter
from roles.hardened.texts import edited
from roles.hardened.trial import Trial
from roles.packages import install
from roles.shipped import ship

_PACKAGES = ("apparmor", "apparmor-utils", "auditd", "debsums", "libpam-pwquality", "nftables", "openssh-server")


@dataclass(frozen=True, slots=True)
class Hardened(Role):
    """A node that lets in whom the plan names, by key, and remembers who did what.

    `fabric` says that it may have several interfaces on one network.
    """

    doors: tuple[Rule, ...]
    duties: frozenset[Duty]
    fabric: bool = False
    name: ClassVar[str] = "hardened"

    def install(self) -> None:
        """Install the guards of the system."""
        install("Guards", _PACKAGES)

    def configure(self) -> Changes:
        """Write what is wanted; return what auditd reads."""
        ship(*kernel.shipped(self._settings), *logins.shipped())
        edited(*logins.EDITS, memory.AT_BOOT)
        passwords.guard()
        modes.tighten()
        identity.prove()
        self._trial.write()
        return ship(auditing.RULES, auditing.DAEMON)

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
        return Trial(packet_filter.ruleset(self.doors, self.duties), sshd.settings(self.duties))
