"""How tests run: requirements, no network and no credentials, pace of this machine, kill points, documented commands.

A test whose requirement is missing is skipped with the reason; with CI=true it fails.
"""

import ipaddress
import os
import re
import shutil
import signal
import socket
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter, process_time
from typing import Any, NoReturn

import pytest


def need_root() -> None:
    """Skip the test if it does not run as root."""
    if os.geteuid() != 0:
        lack("needs root")


def need_program(name: str) -> None:
    """Skip the test if a program is not installed."""
    if shutil.which(name) is None:
        lack(f"needs {name}")


def need_processor_without(flag: str, reason: str) -> None:
    """Skip the test, also with CI=true, if the processor has a feature: no installation can change that."""
    if flag in Path("/proc/cpuinfo").read_text().split():
        pytest.skip(reason)


def lack(reason: str) -> NoReturn:
    """Skip the test for a reason; with CI=true it fails."""
    if os.environ.get("CI") == "true":
        pytest.fail(f"{reason}; with CI=true this is a failure")
    pytest.skip(reason)


# Nothing listens on this port, so programs that use the proxy variables fail at once.
_DEAD_PROXY = "http://127.0.0.1:9"
_LOCAL = "localhost,127.0.0.1,::1"


def remove_credentials(environment: MutableMapping[str, str]) -> None:
    """Remove AWS credentials and files from an environment, and set proxies that refuse connections."""
    for name in [name for name in environment if name.startswith("AWS_")]:
        del environment[name]
    files = dict.fromkeys(("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"), os.devnull)
    proxies = {word: _DEAD_PROXY for name in ("HTTP_PROXY", "HTTPS_PROXY") for word in (name, name.lower())}
    environment.update(
        {**files, **proxies, "AWS_EC2_METADATA_DISABLED": "true", "NO_PROXY": _LOCAL, "no_proxy": _LOCAL}
    )


@contextmanager
def block_network() -> Iterator[None]:
    """Fail a test that connects to another machine, or resolves its name, in this process."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("connect", "connect_ex"):
            patch.setattr(socket.socket, name, _guarded(getattr(socket.socket, name)))
        patch.setattr(socket, "getaddrinfo", _guarded_lookup(socket.getaddrinfo))
        yield


def _guarded(connect: Any) -> Any:  # noqa: ANN401  the socket's own signatures
    def guarded(self: socket.socket, address: Any) -> Any:  # noqa: ANN401
        if self.family in (socket.AF_INET, socket.AF_INET6):
            _check_is_local(address[0])
        return connect(self, address)

    return guarded


def _guarded_lookup(look: Any) -> Any:  # noqa: ANN401
    def guarded(host: Any, *arguments: Any, **named: Any) -> Any:  # noqa: ANN401
        _check_is_local(host)
        return look(host, *arguments, **named)

    return guarded


def _check_is_local(host: object) -> None:
    name = host.decode() if isinstance(host, bytes) else str(host or "localhost")
    if name != "localhost" and not _is_loopback(name):
        pytest.fail(f"the test would have reached {name}")


def _is_loopback(name: str) -> bool:
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified


# Time of the loop on an idle core at 3.5 GHz with CPython 3.11.
_NOMINAL_SECONDS = 0.0125
_TURNS = 300_000
# This many loops take as long as a command, so that the load of other processes shows.
_LOOPS = 40


def pace() -> float:
    """Return how many times slower the processor is than the reference; at least 1."""
    return max(1.0, min(_loop(process_time) for _ in range(3)) / _NOMINAL_SECONDS)


def pace_line() -> str:
    """Return how seconds of processor in a report were made: divided by `pace`."""
    return f"seconds of processor are measured ones divided by {pace():.2f}, the pace of this machine"


def clock_pace() -> float:
    """Return the same in wall-clock time, which includes waits for a core that other processes use."""
    return max(1.0, sum(_loop(perf_counter) for _ in range(_LOOPS)) / _LOOPS / _NOMINAL_SECONDS)


def _loop(clock: Callable[[], float]) -> float:
    start, total = clock(), 0
    for turn in range(_TURNS):
        total += turn & 7
    return clock() - start


START, END = "@@start", "@@end"


@dataclass(frozen=True)
class Point:
    """The n-th call of a system call by a program, counted from its start."""

    call: str
    number: int

    def __str__(self) -> str:
        return f"{self.call}#{self.number}"


def crash_points(command: Sequence[str], trace: Path) -> tuple[Point, ...]:
    """Return the system calls that a command makes between its START and END marks, in order."""
    _strace(command, "-o", str(trace))
    counts: Counter[str] = Counter()
    return tuple(_between_marks(trace.read_text().splitlines(), counts))


def die_at(point: Point, command: Sequence[str]) -> None:
    """Run a command, and kill it when it enters a system call."""
    inject = f"inject={point.call}:signal=KILL:when={point.number}"
    done = _strace(command, "-o", "/dev/null", "-e", f"trace={point.call}", "-e", inject)
    if done.returncode != -signal.SIGKILL or START not in done.stdout or END in done.stdout:
        raise AssertionError(f"the command was not killed at {point} between its marks: {done}")


def _between_marks(lines: Sequence[str], counts: Counter[str]) -> Iterator[Point]:
    inside = False
    for line in lines:
        call = line.partition("(")[0]
        counts[call] += 1
        if END in line:
            return
        if inside:
            yield Point(call, counts[call])
        inside = inside or START in line


def _strace(command: Sequence[str], *options: str) -> subprocess.CompletedProcess[str]:
    # With a fixed hash seed, a program makes the same system calls each time.
    return subprocess.run(
        ["strace", "-qq", *options, *command],
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONHASHSEED": "0", "PATH": "/usr/bin:/bin"},
    )


def clock_offset(by: str) -> Mapping[str, str]:
    """Return the environment that shifts a program's clock by an offset such as -4m or +100d; timers are unchanged."""
    (library,) = sorted(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"))[:1]
    return {"LD_PRELOAD": str(library), "FAKETIME": by, "FAKETIME_DONT_FAKE_MONOTONIC": "1"}


ROOT = Path(__file__).parents[2]
_PROGRAMS = frozenset(
    ("bedplate", "sudo", "nft", "nmcli", "openvpn", "swanctl", "vtysh", "journalctl", "loginctl", "systemctl")
)


def documented_commands(page: str) -> list[str]:
    """Return the commands in the code blocks of a page, in order, without comments."""
    return list(block_commands(page_text(page)))


def documented_blocks(page: str) -> tuple[list[str], ...]:
    """Return the commands of each code block of a page."""
    blocks = (f"```{block}```" for block in page_text(page).split("```")[1::2] if block.startswith("\n"))
    return tuple(list(block_commands(block)) for block in blocks)


def documented_yaml(page: str, word: str) -> str:
    """Return the YAML block of a page that contains a word. Raises StopIteration."""
    blocks = (block for block in page_text(page).split("```")[1::2] if block.startswith("yaml\n"))
    return next(block.removeprefix("yaml\n") for block in blocks if word in block)


def page_text(page: str) -> str:
    """Return the text of a page in docs."""
    return (ROOT / "docs" / page).read_text(encoding="utf-8")


def block_commands(text: str) -> Iterator[str]:
    """Yield the commands in the code blocks of a text, in order, without comments."""
    for block in text.split("```")[1::2]:
        if block.startswith("\n"):
            yield from filter(None, (line.partition("  #")[0].strip() for line in block.splitlines()))


def prose_commands(text: str) -> tuple[str, ...]:
    """Return the complete commands in the prose of a text, except the first words of a command in a code block."""
    in_blocks = tuple(block_commands(text))
    spans = (" ".join(span.split()) for span in re.findall(r"`([^`]+)`", "".join(text.split("```")[::2])))
    commands = (span for span in spans if span.partition(" ")[0] in _PROGRAMS and " " in span)
    return tuple(dict.fromkeys(span for span in commands if not any(line.startswith(span) for line in in_blocks)))
