"""Network laboratories: hosts in namespaces, wires, programs, and measurements of traffic."""

import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv4Interface, IPv4Network
from itertools import count, pairwise
from pathlib import Path
from time import monotonic, sleep, time
from types import TracebackType
from typing import Self

_GRACE_SECONDS = 10
# How much slower an emulated processor is: waiting is longer there, and checks and pings are less frequent.
SLOWNESS = float(os.environ.get("LAB_SLOWNESS", "1"))


@dataclass(frozen=True)
class LabProgram:
    """A started program, which is ended by its process id."""

    popen: "subprocess.Popen[bytes]"
    log: Path

    @property
    def pid(self) -> int:
        """The process id."""
        return self.popen.pid

    @property
    def runs(self) -> bool:
        """Whether the program still runs."""
        return self.popen.poll() is None

    @property
    def output(self) -> str:
        """The output so far."""
        return self.log.read_text(errors="replace")

    def end(self, how: signal.Signals = signal.SIGTERM) -> None:
        """End the program and its process group, and wait for the exit."""
        if not self.runs:
            return
        if os.getpgid(self.pid) == self.pid:
            os.killpg(self.pid, how)
        else:
            self.popen.send_signal(how)
        try:
            self.popen.wait(_GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            self.popen.kill()
            self.popen.wait(_GRACE_SECONDS)


def until(happens: Callable[[], bool], seconds: float, what: str, every: float = 0.05) -> float:
    """Wait for a condition and return the seconds it took; raise AssertionError with a description, on timeout."""
    start, limit = monotonic(), seconds * SLOWNESS
    while monotonic() - start < limit:
        if happens():
            return monotonic() - start
        sleep(every * SLOWNESS)
    raise AssertionError(f"{what}: not within {limit:g} s")


_NUMBERS = count(1)
# Includes the folders of daemons, which a user's PATH may lack.
_PATH = "/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin"
_SECONDS = 60


class LabError(RuntimeError):
    """A command of the laboratory failed."""


@dataclass(frozen=True)
class LabHost:
    """A host: a network namespace, and a folder for its files and logs."""

    name: str
    namespace: str
    folder: Path
    programs: list[LabProgram] = field(default_factory=list)

    def run(
        self, *command: str, stdin: str | None = None, env: Mapping[str, str] | None = None, seconds: float = _SECONDS
    ) -> str:
        """Run a command and return its output; raise LabError if it fails."""
        return checked(["ip", "netns", "exec", self.namespace, *command], stdin, env, seconds)

    def tries(self, *command: str, env: Mapping[str, str] | None = None, seconds: float = _SECONDS) -> bool:
        """Return whether a command succeeds."""
        try:
            self.run(*command, env=env, seconds=seconds)
        except LabError:
            return False
        return True

    def start(self, *command: str, log: str, env: Mapping[str, str] | None = None) -> LabProgram:
        """Start a program in the background; its output is appended to the file `log` of the host's folder."""
        with (self.folder / log).open("ab") as sink:
            # `ip netns exec` replaces itself with the command: the process id is that of the command.
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
        """Route a block, or `default`, through a neighbour."""
        self.run("ip", "route", "replace", str(block), "via", str(via))

    def forward(self) -> None:
        """Enable IP forwarding."""
        self.run("sysctl", "-qw", "net.ipv4.ip_forward=1")

    def load_rules(self, text: str) -> None:
        """Load nftables rules."""
        self.run("nft", "-f", "-", stdin=text)

    def cut(self, device: str) -> None:
        """Drop all packets on a device in both directions, like a pulled cable."""
        hooks = ("input", "iifname"), ("forward", "iifname"), ("forward", "oifname"), ("output", "oifname")
        chains = (
            f"chain c{number} {{ type filter hook {hook} priority -310; {side} {device} drop; }}\n"
            for number, (hook, side) in enumerate(hooks)
        )
        self.load_rules("table inet lab_cut {\n" + "".join(chains) + "}\n")

    def heal(self) -> None:
        """End the cut."""
        self.run("nft", "delete", "table", "inet", "lab_cut")

    def pings(self, address: IPv4Address | str, times: int = 3, seconds: float = 1) -> bool:
        """Return whether all of these pings are answered."""
        command = ["ping", "-q", "-n", "-c", str(times), "-i", "0.1", "-W", str(seconds), str(address)]
        try:
            return f" {times} received" in self.run(*command)
        except LabError:
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
        """Create a host without connections."""
        host = LabHost(name, f"{self._prefix}-{name}", self.folder / name)
        host.folder.mkdir()
        checked(["ip", "netns", "add", host.namespace])
        self._hosts.append(host)
        host.run("ip", "link", "set", "lo", "up")
        return host

    def wire(
        self, first: tuple[LabHost, str, IPv4Interface | str], second: tuple[LabHost, str, IPv4Interface | str]
    ) -> None:
        """Connect two hosts: each end is a host, its device's name and its address with the prefix, or ""."""
        (first_host, first_device, _), (second_host, second_device, _) = first, second
        options = ["type", "veth", "peer", "name", second_device, "netns", second_host.namespace]
        checked(["ip", "-n", first_host.namespace, "link", "add", first_device, *options])
        for host, name, address in (first, second):
            if address:
                host.run("ip", "address", "add", str(address), "dev", name)
            host.run("ip", "link", "set", name, "up")

    def close(self) -> None:
        """End every program, newest first, and delete every host."""
        for host in reversed(self._hosts):
            for program in reversed(host.programs):
                program.end()
            checked(["ip", "netns", "delete", host.namespace])
        self._hosts.clear()
        shutil.rmtree(self.folder)


def checked(
    command: list[str], stdin: str | None = None, env: Mapping[str, str] | None = None, seconds: float = _SECONDS
) -> str:
    """Run a command on this machine and return its output; raise LabError, with its last output, if it fails."""
    try:
        done = subprocess.run(
            command, input=stdin, env=_environment(env), text=True, capture_output=True, timeout=seconds, check=False
        )
    except subprocess.TimeoutExpired as late:
        raise LabError(f"{' '.join(command)}: nothing after {seconds} s") from late
    if done.returncode:
        last = (done.stderr.strip() or done.stdout.strip())[-800:]
        raise LabError(f"{' '.join(command)}: status {done.returncode}: {last}")
    return done.stdout


def _environment(more: Mapping[str, str] | None) -> dict[str, str]:
    return {**os.environ, "PATH": _PATH, "LC_ALL": "C", **(more or {})}


_REPLY = re.compile(r"^\[(\d+\.\d+)\] \d+ bytes from .*icmp_seq=(\d+)", re.MULTILINE)
# The time that tcpdump needs to write the last packets.
_WRITTEN_SECONDS = 0.3


@dataclass(frozen=True, slots=True)
class Answers:
    """The replies to a run of pings: the time of each in Unix time, and its number."""

    times: tuple[float, ...]
    numbers: tuple[int, ...]

    @property
    def lost(self) -> int:
        """The number of pings without a reply between the first and the last reply."""
        return self.numbers[-1] - self.numbers[0] + 1 - len(set(self.numbers)) if self.numbers else 0

    @property
    def share_lost(self) -> float:
        """The share of pings without a reply."""
        return self.lost / (self.numbers[-1] - self.numbers[0] + 1) if self.numbers else 1.0

    @property
    def silences(self) -> tuple[float, ...]:
        """The seconds of each silence, from the reply before it to the one after."""
        seen = list(zip(self.times, self.numbers, strict=True))
        return tuple(after - before for (before, old), (after, new) in pairwise(seen) if new - old > 1)

    @property
    def longest(self) -> float:
        """The longest silence."""
        return max(self.silences, default=0.0)

    def first_after(self, moment: float) -> float | None:
        """Return the time of the first reply after a moment."""
        return next((reply_time for reply_time in self.times if reply_time > moment), None)


@dataclass(frozen=True)
class Pinging:
    """Running pings."""

    program: LabProgram

    @property
    def answers(self) -> Answers:
        """The replies so far."""
        replies = _REPLY.findall(self.program.output)
        return Answers(tuple(float(moment) for moment, _ in replies), tuple(int(number) for _, number in replies))

    def wait_for_answer(self, seconds: float) -> float:
        """Wait for the next reply, and return the seconds it took."""
        start = time()
        return until(lambda: self.answers.first_after(start) is not None, seconds, "no ping was answered again")

    def stop(self) -> Answers:
        """Stop the pings and return all replies."""
        self.program.end(signal.SIGINT)
        return self.answers


def pinging(host: LabHost, address: IPv4Address | str, every: float = 0.05) -> Pinging:
    """Start pings from a host at an interval in seconds."""
    log = f"ping-{len(host.programs)}.log"
    return Pinging(host.start("ping", "-D", "-n", "-W", "1", "-i", str(every * SLOWNESS), str(address), log=log))


def refusal(host: LabHost, address: IPv4Address | str, seconds: int) -> str:
    """Return the output of a ping without a reply within these seconds; raise AssertionError if there is one."""
    try:
        host.run("ping", "-n", "-c", "1", "-W", str(seconds), str(address))
    except LabError as error:
        return str(error)
    raise AssertionError(f"{address} answers {host.name}")


@contextmanager
def capture(host: LabHost, device: str) -> Iterator[Path]:
    """Capture the packets on a device while the block runs; yield the file, complete after the block."""
    file = host.folder / f"{device}-{len(host.programs)}.pcap"
    command = ["tcpdump", "--immediate-mode", "-U", "-Z", "root", "-s0", "-i", device, "-w", str(file)]
    program = host.start(*command, log=f"{file.name}.log")
    until(lambda: "listening on" in program.output, 10, "tcpdump does not listen")
    try:
        yield file
    finally:
        sleep(_WRITTEN_SECONDS)
        program.end(signal.SIGINT)


def packets(file: Path, pcap_filter: str = "") -> Sequence[str]:
    """Return the packets of a capture that match a tcpdump filter, one a line."""
    return checked(["tcpdump", "-n", "-r", str(file), *([pcap_filter] if pcap_filter else [])]).splitlines()


def megabits(client: LabHost, server: LabHost, address: IPv4Address | str, seconds: int) -> float:
    """Return the throughput of one TCP stream in Mbit/s."""
    return float(_streamed(client, server, address, seconds)["sum_received"]["bits_per_second"]) / 1e6


def steady_loss(client: LabHost, server: LabHost, address: IPv4Address | str, seconds: int, megabits: int) -> float:
    """Return the lost share of a constant UDP stream of so many Mbit/s."""
    ended = _streamed(client, server, address, seconds, "-u", "-b", f"{megabits}M", "-l", "1200")
    return float(ended["sum"]["lost_percent"]) / 100


def _streamed(
    client: LabHost, server: LabHost, address: IPv4Address | str, seconds: int, *more: str
) -> dict[str, dict[str, float]]:
    log = f"iperf-{len(server.programs)}.log"
    listener = server.start("iperf3", "--forceflush", "-s", "-1", "-B", str(address), log=log)
    until(lambda: "listening" in listener.output, 10, "iperf3 does not listen")
    report = client.run("iperf3", "-J", "-c", str(address), "-t", str(seconds), *more, seconds=seconds + 30)
    listener.end()
    ended: dict[str, dict[str, float]] = json.loads(report)["end"]
    return ended


_OTHER = os.sched_param(0)
_FIRST = os.sched_param(1)


@contextmanager
def first_turn() -> Iterator[None]:
    """Give this process and its children realtime priority, if permitted."""
    with suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_RR, _FIRST)
    try:
        yield
    finally:
        os.sched_setscheduler(0, os.SCHED_OTHER, _OTHER)
