"""What a test needs of the machine: it is skipped where that is missing, with the reason, but fails under CI=true."""

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
from typing import Any

import pytest


def need_root() -> None:
    """Go on as root only."""
    if os.geteuid() != 0:
        _lack("needs root")


def need_program(name: str) -> None:
    """Go on where the program is installed."""
    if shutil.which(name) is None:
        _lack(f"needs {name}")


def _lack(reason: str) -> None:
    if os.environ.get("CI") == "true":
        pytest.fail(f"{reason}, and CI may not leave it out")
    pytest.skip(reason)


# Nothing listens on the port of `discard`, so whoever honours these variables is refused at once.
_NOWHERE = "http://127.0.0.1:9"
_HERE = "localhost,127.0.0.1,::1"


def shut_off(environment: MutableMapping[str, str]) -> None:
    """Take away whatever leads to a real account, and put proxies that lead nowhere."""
    for name in [name for name in environment if name.startswith("AWS_")]:
        del environment[name]
    files = dict.fromkeys(("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"), os.devnull)
    proxies = {word: _NOWHERE for name in ("HTTP_PROXY", "HTTPS_PROXY") for word in (name, name.lower())}
    environment.update({**files, **proxies, "AWS_EC2_METADATA_DISABLED": "true", "NO_PROXY": _HERE, "no_proxy": _HERE})


@contextmanager
def kept_in() -> Iterator[None]:
    """Fail the test that would connect to another machine, or ask for its address, from this process."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("connect", "connect_ex"):
            patch.setattr(socket.socket, name, _guarded(getattr(socket.socket, name)))
        patch.setattr(socket, "getaddrinfo", _guarded_lookup(socket.getaddrinfo))
        yield


def _guarded(connect: Any) -> Any:  # noqa: ANN401  the socket's own signatures
    def guarded(self: socket.socket, address: Any) -> Any:  # noqa: ANN401
        if self.family in (socket.AF_INET, socket.AF_INET6):
            _check_is_here(address[0])
        return connect(self, address)

    return guarded


def _guarded_lookup(look: Any) -> Any:  # noqa: ANN401
    def guarded(host: Any, *arguments: Any, **named: Any) -> Any:  # noqa: ANN401
        _check_is_here(host)
        return look(host, *arguments, **named)

    return guarded


def _check_is_here(host: object) -> None:
    name = host.decode() if isinstance(host, bytes) else str(host or "localhost")
    if name != "localhost" and not _is_loopback(name):
        pytest.fail(f"a test would have reached {name}")


def _is_loopback(name: str) -> bool:
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified


# What the loop takes on a core at 3.5 GHz with nothing beside it, CPython 3.11.
_NOMINAL_SECONDS = 0.0125
_TURNS = 300_000
# So many loops take as long as a command does, so that who else wants the core is seen in it.
_LONG = 40


def pace() -> float:
    """Return by how much longer than there a piece of work takes here and now; 1 at least."""
    return max(1.0, min(_loop(process_time) for _ in range(3)) / _NOMINAL_SECONDS)


def clock_pace() -> float:
    """Return the same by the clock, with the waits for a core that others use: for what an operator waits for."""
    return max(1.0, sum(_loop(perf_counter) for _ in range(_LONG)) / _LONG / _NOMINAL_SECONDS)


def _loop(clock: Callable[[], float]) -> float:
    start, total = clock(), 0
    for turn in range(_TURNS):
        total += turn & 7
    return clock() - start


START, END = "@@start", "@@end"


@dataclass(frozen=True)
class Point:
    """The n-th time that a program makes a system call, counted from its start."""

    call: str
    number: int

    def __str__(self) -> str:
        return f"{self.call}#{self.number}"


def crash_points(command: Sequence[str], trace: Path) -> tuple[Point, ...]:
    """Return every system call that a command makes between its marks, in order."""
    _strace(command, "-o", str(trace))
    counts: Counter[str] = Counter()
    return tuple(_between_marks(trace.read_text().splitlines(), counts))


def die_at(point: Point, command: Sequence[str]) -> None:
    """Run a command and kill it as it enters that call."""
    inject = f"inject={point.call}:signal=KILL:when={point.number}"
    done = _strace(command, "-o", "/dev/null", "-e", f"trace={point.call}", "-e", inject)
    if done.returncode != -signal.SIGKILL or START not in done.stdout or END in done.stdout:
        raise AssertionError(f"{point} did not kill between the marks: {done}")


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
    # A fixed hash seed: the program must make the same calls each time, or the numbers mean nothing.
    return subprocess.run(
        ["strace", "-qq", *options, *command],
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONHASHSEED": "0", "PATH": "/usr/bin:/bin"},
    )


def skewed(by: str) -> Mapping[str, str]:
    """Return the environment that puts a program's clock off, such as -4m or +100d; timers keep the true pace."""
    (library,) = sorted(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"))[:1]
    return {"LD_PRELOAD": str(library), "FAKETIME": by, "FAKETIME_DONT_FAKE_MONOTONIC": "1"}


ROOT = Path(__file__).parents[2]
_PROGRAMS = frozenset(
    ("bedplate", "sudo", "nft", "nmcli", "openvpn", "swanctl", "vtysh", "journalctl", "loginctl", "systemctl")
)


def told_commands(page: str) -> list[str]:
    """Return the commands of a page's plain blocks, in order, without their comments."""
    return list(block_commands(page_text(page)))


def told_blocks(page: str) -> tuple[list[str], ...]:
    """Return the commands of each plain block of a page, where blocks are for different fleets."""
    blocks = (f"```{block}```" for block in page_text(page).split("```")[1::2] if block.startswith("\n"))
    return tuple(list(block_commands(block)) for block in blocks)


def told_yaml(page: str, word: str) -> str:
    """Return the part of a fleet file that a page shows, with a word in it; StopIteration where it shows none."""
    blocks = (block for block in page_text(page).split("```")[1::2] if block.startswith("yaml\n"))
    return next(block.removeprefix("yaml\n") for block in blocks if word in block)


def page_text(page: str) -> str:
    """Return a page of the documentation."""
    return (ROOT / "docs" / page).read_text(encoding="utf-8")


def block_commands(text: str) -> Iterator[str]:
    """Yield the commands of a text's plain blocks, in order, without their comments."""
    for block in text.split("```")[1::2]:
        if block.startswith("\n"):
            yield from filter(None, (line.partition("  #")[0].strip() for line in block.splitlines()))


def prose_commands(text: str) -> tuple[str, ...]:
    """Return the whole commands that a text's prose tells; the name of a command that a block has is none."""
    typed = tuple(block_commands(text))
    spans = (" ".join(span.split()) for span in re.findall(r"`([^`]+)`", "".join(text.split("```")[::2])))
    commands = (span for span in spans if span.split()[0] in _PROGRAMS and " " in span)
    return tuple(dict.fromkeys(each for each in commands if not any(one.startswith(each) for one in typed)))
