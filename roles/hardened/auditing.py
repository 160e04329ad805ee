"""What auditd writes down: who changed what gives access to a node."""

from pyinfra.operations import server
from pyinfra.operations.util import any_changed

from roles.base import Changes
from roles.shipped import Shipped
from roles.template import text_of

RULES = Shipped("What is audited", "/etc/audit/rules.d/50-bedplate.rules", text_of("hardened/audit.rules"), "640")
DAEMON = Shipped("How it is kept", "/etc/audit/auditd.conf", text_of("hardened/auditd.conf"), "640")
# A container has no audit of its own: there auditd does not run, and nothing is loaded.
_LOAD = "if systemctl --quiet is-active auditd; then augenrules --load && systemctl kill --signal=HUP auditd; fi"


def load(changes: Changes) -> None:
    """Have the daemon read what has changed; auditd refuses to be restarted, and loses nothing this way."""
    server.shell(name="Audit takes its rules", commands=[_LOAD], _if=any_changed(*changes))
