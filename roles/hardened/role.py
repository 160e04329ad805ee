"""The role `hardened`."""

from dataclasses import dataclass
from typing import ClassVar

from pyinfra.operations import apt

from bedplate.plan.door import Rule
from bedplate.plan.node import Duty
from roles.base import Changes, Role
from roles.hardened import filter as packet_filter
from roles.hardened import sshd
from roles.hardened.trial import Trial

_PACKAGES = ("nftables", "openssh-server")


@dataclass(frozen=True, slots=True)
class Hardened(Role):
    """A node that lets in whom the plan names, by key, and remembers who did what."""

    doors: tuple[Rule, ...]
    duties: frozenset[Duty]
    name: ClassVar[str] = "hardened"

    @property
    def trial(self) -> Trial:
        """What goes into force on trial."""
        return Trial(packet_filter.ruleset(self.doors, self.duties), sshd.settings(self.duties))

    def install(self) -> None:
        """Install the packet filter's tool and the guards of the system."""
        apt.packages(name="Guards", packages=list(_PACKAGES), no_recommends=True)

    def configure(self) -> Changes:
        """Write what is wanted."""
        return self.trial.write()

    def activate(self, changes: Changes) -> None:
        """Put it in force."""
        self.trial.begin(changes)
