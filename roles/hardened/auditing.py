"""What auditd writes down: who changed what gives access to a node."""

from pyinfra.operations import server
from pyinfra.operations.util import any_changed

from roles.base import Changes
from roles.shipped import Shipped
from roles.template import text_of

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
