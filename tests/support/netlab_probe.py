"""What a laboratory is measured by: pings without pause, captures of a wire, and the pace of a stream."""

import json
import re
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from ipaddress import IPv4Address
from itertools import pairwise
from pathlib import Path
from time import sleep, time

from tests.support.netlab import LabHost, LabTrouble, checked
from tests.support.netlab_program import SLOWNESS, LabProgram, until

_REPLY = re.compile(r"^\[(\d+\.\d+)\] \d+ bytes from .*icmp_seq=(\d+)", re.MULTILINE)
# A capture is read when its program has written what the wire had carried by then.
_WRITTEN_SECONDS = 0.3


@dataclass(frozen=True, slots=True)
class Answers:
    """The answers to a run of pings: when each came, in seconds since 1970, and its number."""

    times: tuple[float, ...]
    numbers: tuple[int, ...]

    @property
    def lost(self) -> int:
        """How many pings between the first and the last answer had none."""
        return self.numbers[-1] - self.numbers[0] + 1 - len(set(self.numbers)) if self.numbers else 0

    @property
    def share_lost(self) -> float:
        """Which part of the pings had no answer."""
        return self.lost / (self.numbers[-1] - self.numbers[0] + 1) if self.numbers else 1.0

    @property
    def silences(self) -> tuple[float, ...]:
        """How long each silence lasted, in seconds, from the answer before it to the one after."""
        seen = list(zip(self.times, self.numbers, strict=True))
        return tuple(after - before for (before, old), (after, new) in pairwise(seen) if new - old > 1)

    @property
    def longest(self) -> float:
        """The longest silence."""
        return max(self.silences, default=0.0)

    def first_after(self, moment: float) -> float | None:
        """Return when the first answer after a moment came."""
        return next((one for one in self.times if one > moment), None)


@dataclass(frozen=True)
class Pinging:
    """Pings that go on."""

    program: LabProgram

    @property
    def answers(self) -> Answers:
        """What was answered so far."""
        found = _REPLY.findall(self.program.told)
        return Answers(tuple(float(moment) for moment, _ in found), tuple(int(number) for _, number in found))

    def wait_for_answer(self, seconds: float) -> float:
        """Wait for an answer to come from now on, and return the seconds it took."""
        start = time()
        return until(lambda: self.answers.first_after(start) is not None, seconds, "no ping was answered again")

    def stop(self) -> Answers:
        """End them and return all answers."""
        self.program.end(signal.SIGINT)
        return self.answers


def pinging(host: LabHost, address: IPv4Address | str, every: float = 0.05) -> Pinging:
    """Start pings from a host, one each so many seconds."""
    log = f"ping-{len(host.programs)}.log"
    return Pinging(host.start("ping", "-D", "-n", "-W", "1", "-i", str(every * SLOWNESS), str(address), log=log))


def refusal(host: LabHost, address: IPv4Address | str, seconds: int) -> str:
    """Return what a host is told of a ping without an answer within so many seconds; AssertionError when it has one."""
    try:
        host.run("ping", "-n", "-c", "1", "-W", str(seconds), str(address))
    except LabTrouble as told:
        return str(told)
    raise AssertionError(f"{address} answers {host.name}")


@contextmanager
def capture(host: LabHost, device: str) -> Iterator[Path]:
    """Write down every packet that passes a device meanwhile; the file can be read once the block has ended."""
    file = host.folder / f"{device}-{len(host.programs)}.pcap"
    command = ["tcpdump", "--immediate-mode", "-U", "-Z", "root", "-s0", "-i", device, "-w", str(file)]
    program = host.start(*command, log=f"{file.name}.log")
    until(lambda: "listening on" in program.told, 10, "tcpdump does not listen")
    try:
        yield file
    finally:
        sleep(_WRITTEN_SECONDS)
        program.end(signal.SIGINT)


def packets(file: Path, wanted: str = "") -> Sequence[str]:
    """Return the packets of a capture that a tcpdump expression wants, a line each."""
    return checked(["tcpdump", "-n", "-r", str(file), *([wanted] if wanted else [])]).splitlines()


def megabits(client: LabHost, server: LabHost, address: IPv4Address | str, seconds: int) -> float:
    """Return how many Mbit/s one TCP stream carried from a client to a server."""
    return float(_streamed(client, server, address, seconds)["sum_received"]["bits_per_second"]) / 1e6


def steady_loss(client: LabHost, server: LabHost, address: IPv4Address | str, seconds: int, megabits: int) -> float:
    """Return which part of a steady stream of UDP, so many Mbit/s, did not arrive."""
    ended = _streamed(client, server, address, seconds, "-u", "-b", f"{megabits}M", "-l", "1200")
    return float(ended["sum"]["lost_percent"]) / 100


def _streamed(
    client: LabHost, server: LabHost, address: IPv4Address | str, seconds: int, *more: str
) -> dict[str, dict[str, float]]:
    log = f"iperf-{len(server.programs)}.log"
    listener = server.start("iperf3", "--forceflush", "-s", "-1", "-B", str(address), log=log)
    until(lambda: "listening" in listener.told, 10, "iperf3 does not listen")
    told = client.run("iperf3", "-J", "-c", str(address), "-t", str(seconds), *more, seconds=seconds + 30)
    listener.end()
    ended: dict[str, dict[str, float]] = json.loads(told)["end"]
    return ended
