"""A laboratory of network namespaces on this machine: hosts, the wires between them, and the programs that run there.

Everything carries the number of this process in its name, lies outside the machine's own network, and goes with
`close`, programs first. Needs root and iproute2. Never touches what it did not make.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv4Interface, IPv4Network
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support.netlab_program import LabProgram

_NUMBERS = count(1)
# Where daemons live; a user's PATH may lack them.
_PATH = "/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin"
_SECONDS = 60


class LabTrouble(RuntimeError):
    """A command of the laboratory failed."""


@dataclass(frozen=True)
class LabHost:
    """A host: a namespace of its own, and a folder for its files and logs."""

    name: str
    namespace: str
    folder: Path
    programs: list[LabProgram] = field(default_factory=list)

    def run(
        self, *command: str, told: str | None = None, env: Mapping[str, str] | None = None, seconds: float = _SECONDS
    ) -> str:
        """Run a command to its end and return what it printed; LabTrouble when it fails."""
        return checked(["ip", "netns", "exec", self.namespace, *command], told, env, seconds)

    def tries(self, *command: str, env: Mapping[str, str] | None = None, seconds: float = _SECONDS) -> bool:
        """Tell whether a command succeeds."""
        try:
            self.run(*command, env=env, seconds=seconds)
        except LabTrouble:
            return False
        return True

    def start(self, *command: str, log: str, env: Mapping[str, str] | None = None) -> LabProgram:
        """Start a program that goes on; what it prints is added to the file `log` of this host's folder."""
        with (self.folder / log).open("ab") as sink:
            # `ip netns exec` replaces itself by the command: the number is the command's own.
            popen = subprocess.Popen(
                ["ip", "netns", "exec", self.namespace, *command],
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                env=_environment(env),
                start_new_session=True,
            )
        program = LabProgram(popen, self.folder / log)
        self.programs.append(program)
        return program

    def route(self, block: IPv4Network | str, via: IPv4Address | str) -> None:
        """Send a block, or `default`, by a neighbour."""
        self.run("ip", "route", "replace", str(block), "via", str(via))

    def forward(self) -> None:
        """Let packets pass through."""
        self.run("sysctl", "-qw", "net.ipv4.ip_forward=1")

    def load_rules(self, text: str) -> None:
        """Give nftables a text."""
        self.run("nft", "-f", "-", told=text)

    def cut(self, device: str) -> None:
        """Lose whatever passes a device, both ways, as a cable that was pulled does without telling anybody."""
        hooks = ("input", "iifname"), ("forward", "iifname"), ("forward", "oifname"), ("output", "oifname")
        chains = (
            f"chain c{number} {{ type filter hook {hook} priority -310; {side} {device} drop; }}\n"
            for number, (hook, side) in enumerate(hooks)
        )
        self.load_rules("table inet lab_cut {\n" + "".join(chains) + "}\n")

    def heal(self) -> None:
        """Put the cable back."""
        self.run("nft", "delete", "table", "inet", "lab_cut")

    def pings(self, address: IPv4Address | str, times: int = 3, seconds: float = 1) -> bool:
        """Tell whether each of some pings is answered."""
        command = ["ping", "-q", "-n", "-c", str(times), "-i", "0.1", "-W", str(seconds), str(address)]
        try:
            return f" {times} received" in self.run(*command)
        except LabTrouble:
            return False


class Lab:
    """The hosts and wires of one laboratory."""

    def __init__(self, name: str) -> None:
        self._prefix = f"{name}{os.getpid()}x{next(_NUMBERS)}"
        self.folder = Path(tempfile.mkdtemp(prefix=f"{self._prefix}-"))
        self._hosts: list[LabHost] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def host(self, name: str) -> LabHost:
        """Make a host that nothing is connected to yet."""
        host = LabHost(name, f"{self._prefix}-{name}", self.folder / name)
        host.folder.mkdir()
        checked(["ip", "netns", "add", host.namespace])
        self._hosts.append(host)
        host.run("ip", "link", "set", "lo", "up")
        return host

    def wire(
        self, first: tuple[LabHost, str, IPv4Interface | str], second: tuple[LabHost, str, IPv4Interface | str]
    ) -> None:
        """Connect two hosts: each end is a host, its device's name there and its address with the prefix, or ""."""
        (one, device, _), (other, far, _) = first, second
        made = ["type", "veth", "peer", "name", far, "netns", other.namespace]
        checked(["ip", "-n", one.namespace, "link", "add", device, *made])
        for host, name, address in (first, second):
            if address:
                host.run("ip", "address", "add", str(address), "dev", name)
            host.run("ip", "link", "set", name, "up")

    def close(self) -> None:
        """End every program, newest first, and take down every host."""
        for host in reversed(self._hosts):
            for program in reversed(host.programs):
                program.end()
            checked(["ip", "netns", "delete", host.namespace])
        self._hosts.clear()
        shutil.rmtree(self.folder)


def checked(
    command: list[str], told: str | None = None, env: Mapping[str, str] | None = None, seconds: float = _SECONDS
) -> str:
    """Run a command on this machine and return what it printed; LabTrouble, with its last words, when it fails."""
    try:
        done = subprocess.run(
            command, input=told, env=_environment(env), text=True, capture_output=True, timeout=seconds, check=False
        )
    except subprocess.TimeoutExpired as late:
        raise LabTrouble(f"{' '.join(command)}: nothing after {seconds} s") from late
    if done.returncode:
        last = (done.stderr.strip() or done.stdout.strip())[-800:]
        raise LabTrouble(f"{' '.join(command)}: status {done.returncode}: {last}")
    return done.stdout


def _environment(more: Mapping[str, str] | None) -> dict[str, str]:
    return {**os.environ, "PATH": _PATH, "LC_ALL": "C", **(more or {})}
