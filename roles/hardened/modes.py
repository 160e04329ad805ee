"""Modes and owners of what the distribution put on a node; asked about all at once."""

from collections.abc import Iterable, Mapping

from pyinfra.api.command import QuoteString, StringCommand
from pyinfra.api.facts import FactBase
from pyinfra.context import host
from pyinfra.operations import server

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
    "/var/log": "755",
    "/home/ubuntu": "750",
    "/home/debian": "750",
    "/home/admin": "750",
}


class Modes(FactBase[Mapping[str, str]]):
    """The mode of each path that there is, in octal: one round trip."""

    default = dict

    def command(self, paths: Iterable[str]) -> StringCommand:
        """Ask for all; what is missing says nothing."""
        return StringCommand("stat -c '%a %n'", *(QuoteString(path) for path in paths), "2>/dev/null || :")

    def process(self, output: Iterable[str]) -> Mapping[str, str]:
        """Read a mode and a path a line."""
        return {path: mode for mode, _, path in (line.partition(" ") for line in output)}


def tighten() -> None:
    """Set the modes that are not what they are to be."""
    found = host.get_fact(Modes, paths=tuple(WANTED))
    wrong = [path for path, mode in found.items() if mode != WANTED[path]]
    if wrong:
        server.shell(name="File modes", commands=[f"chmod {WANTED[path]} {path}" for path in wrong])
