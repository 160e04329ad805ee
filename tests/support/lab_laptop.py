"""Somebody's laptop in a laboratory, with the stock client."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from signal import SIGKILL

from tests.support.netlab import LabHost
from tests.support.netlab_program import LabProgram, until

_SCRIPT = Path("/etc/openvpn/update-resolv-conf")
# What NetworkManager and the script of that name do with what a gateway tells them of names.
_UP = r"""#!/bin/sh
env | sed -n 's/^foreign_option_[0-9]*=dhcp-option //p' | sed 's/^DNS /nameserver /; s/^DOMAIN /search /' > %s
"""
# Asks whom the file that is its first word names.
NAMED = 'mount --bind "$0" /etc/resolv.conf && exec "$@"'
_SCRIPTED = 'mount --bind "$0" "$1" && shift && exec "$@"'


@dataclass
class LaptopHost:
    """Somebody's laptop, somewhere on the internet."""

    host: LabHost
    name: str
    client: LabProgram | None = None

    def connect(self, profile: str, *more: str, env: Mapping[str, str] | None = None) -> LabProgram:
        """Start the stock client on a profile, in place of what ran before."""
        self.end()
        file = self.host.folder / "profile.ovpn"
        file.write_text(profile)
        log = f"client-{len(self.host.programs)}.log"
        self.client = self.host.start("openvpn", "--config", str(file), *more, log=log, env=env)
        return self.client

    @property
    def profile(self) -> str:
        """The profile that the client was last started on."""
        return (self.host.folder / "profile.ovpn").read_text()

    def end(self) -> None:
        """End the client without a word."""
        if self.client is not None:
            self.client.end(SIGKILL)

    def wait(self, seconds: float = 20) -> None:
        """Wait until the client is connected."""
        client = self.client
        assert client is not None
        until(lambda: "Initialization Sequence Completed" in client.told, seconds, f"{self.name} does not get in")

    def named(self, *command: str) -> str:
        """Run a command that asks whom the gateway told to ask."""
        return self.host.run("sh", "-c", NAMED, str(self.host.folder / "resolv.conf"), *command)

    def names_from_gateway(self) -> Path:
        """Return a script that takes up what a gateway tells of names, for this laptop alone."""
        script = self.host.folder / "up"
        script.write_text(_UP % (self.host.folder / "resolv.conf"))
        script.chmod(0o755)
        return script

    def type(self, line: str, folder: Path) -> None:
        """Do what a person types here, in a folder; the client goes on, and its script changes this laptop alone."""
        words = shlex.split(line.removeprefix("sudo "))
        words = [str(folder / word) if (folder / word).is_file() else word for word in words]
        if words[0] == "openvpn":
            own = ("sh", "-c", _SCRIPTED, str(self.names_from_gateway()), str(_SCRIPT))
            self.client = self.host.start(*own, *words, log="typed.log")
            self.wait()
        else:
            self.named(*words)
