"""Logins of people to machines of a laboratory, by the real ssh: accounts, keys, host keys, and agents on laptops."""

import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bedplate.plan import FleetPlan
from roles.base import ManagedFile
from tests.testlab.fleets.variants import RESOLVERS
from tests.testlab.machines.control_plane import member_path
from tests.testlab.network.netlab import LabHost, checked, until

_CONFIGURATION = "/etc/ssh/lab.conf"
SSHD = ("/usr/sbin/sshd", "-D", "-e", "-f", _CONFIGURATION)
_SETTINGS = """Port 22
HostKey /etc/ssh/lab_host
AuthorizedKeysFile /etc/ssh/people/%u
StrictModes no
UsePAM no
SetEnv PATH={path}
"""
# What the units of the role `tokens` do.
TOKENS = """systemd-socket-activate --accept --inetd --setenv=PATH --listen=/run/bedplate-token bedplate-token &
until test -S /run/bedplate-token; do sleep 0.1; done
chmod 666 /run/bedplate-token
wait
"""
RESOLV_CONF = "".join(f"nameserver {address}\n" for address in RESOLVERS)
"""The /etc/resolv.conf of machines and laptops."""


@dataclass(frozen=True)
class Logins:
    """A key of each person, and one host key for all machines."""

    folder: Path
    plan: FleetPlan

    @classmethod
    def create(cls, folder: Path, plan: FleetPlan) -> "Logins":
        """Make the keys, in a new folder."""
        folder.mkdir()
        for name in ("host", *plan.accounts.uids):
            checked(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", str(folder / name)])
        return cls(folder, plan)

    @property
    def host_key(self) -> Path:
        """The file of the public host key."""
        return self.folder / "host.pub"

    def key(self, person: str) -> str:
        """Return the public key of a person."""
        return (self.folder / f"{person}.pub").read_text().strip()

    def files(self) -> Iterator[ManagedFile]:
        """Yield the files of sshd and accounts. Administrators are root: no machine of the tests has sudo."""
        admins = {person.name for person in self.plan.accounts.people if person.admin}
        accounts = Path("/etc/passwd").read_text()
        for name, uid in self.plan.accounts.uids.items():
            number = 0 if name in admins else uid
            accounts += f"{name}:*:{number}:{number}::/:/bin/sh\n"
            yield ManagedFile("", f"/etc/ssh/people/{name}", self.key(name))
        yield ManagedFile("", "/etc/passwd", accounts)
        yield ManagedFile("", "/etc/ssh/lab_host", (self.folder / "host").read_text(), "600")
        yield ManagedFile("", _CONFIGURATION, _SETTINGS.format(path=member_path()))
        yield ManagedFile("", "/etc/resolv.conf", RESOLV_CONF)

    @contextmanager
    def agents(self, laptops: Mapping[str, LabHost]) -> Iterator[Mapping[str, str]]:
        """Run an ssh agent with the key of each person; yield their sockets."""
        sockets = {person: f"{host.folder}/agent" for person, host in laptops.items()}
        for person, host in laptops.items():
            host.start("ssh-agent", "-D", "-a", sockets[person], log="agent.log")
            until(Path(sockets[person]).exists, 10, "no ssh agent")
            environment = {**os.environ, "SSH_AUTH_SOCK": sockets[person]}
            subprocess.run(("ssh-add", "-q", str(self.folder / person)), env=environment, check=True, timeout=10)
        yield sockets
