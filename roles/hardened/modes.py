"""Modes and owners of what the distribution put on a node; asked about all at once."""

from collections.abc import Iterable, Mapping

from pyinfra.api.command import QuoteString, StringCommand
from pyinfra.api.facts import FactBase
from pyinfra.context import host
from pyinfra.operations import server

from roles.hardened import sshd

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
        anew = [sshd.RELOAD] if sshd.MAIN in due else []
        server.shell(name="File modes", commands=[*(f"chmod {mode} {path}" for path, mode in due.items()), *anew])
