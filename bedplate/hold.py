"""One writer at a time: an exclusive hold on a file, with its holder's name in a file beside it.

The kernel keeps the hold (flock) and gives it up when the holder dies, so a hold is never stale on one host.
"""

import fcntl
import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from getpass import getuser
from pathlib import Path

from bedplate.errors import HeldError
from bedplate.writer import is_alive, told_plainly

# A winner names itself right after it has won; a loser that comes in between looks again.
_LOOKS, _PAUSE = 10, 0.02


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds a file: `since` is seconds of Unix time."""

    user: str
    host: str
    pid: int
    since: float
    command: str

    def __str__(self) -> str:
        age = max(0, round(time.time() - self.since))
        return f"{self.user} on {self.host}, process {self.pid}, for {age} s: {self.command}"


@contextmanager
def held(path: Path) -> Iterator[None]:
    """Hold `path` against every other writer while the block runs.

    Raises HeldError at once, naming the holder, when somebody else has it.
    """
    beside = path.with_name(f".{path.name}.held")
    with told_plainly(beside):
        handle = _seized(beside, path)
    try:
        with told_plainly(beside):
            _sign(handle)
        yield
    finally:
        # It goes while it is still held: whoever has opened it by then finds it gone and opens a new one.
        with suppress(OSError):
            beside.unlink()
        os.close(handle)


def _seized(beside: Path, path: Path) -> int:
    """Return a handle on the file beside, held by this process alone."""
    while True:
        with ExitStack() as closing:
            handle = os.open(beside, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
            closing.callback(os.close, handle)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise _refusal(handle, path) from None
            if _is_at(handle, beside):
                closing.pop_all()
                return handle


def _is_at(handle: int, path: Path) -> bool:
    """Tell whether an open file still has that name."""
    try:
        return os.path.samestat(os.fstat(handle), path.stat())
    except FileNotFoundError:
        return False


def _refusal(handle: int, path: Path) -> HeldError:
    return HeldError(
        f"{path.name} is held by {_holder(handle) or 'somebody who has not signed yet'}",
        where=str(path),
        fix="wait until that command has ended, then run yours again",
    )


def _sign(handle: int) -> None:
    holder = Holder(
        user=login_name(),
        host=os.uname().nodename,
        pid=os.getpid(),
        since=time.time(),
        command=" ".join(sys.argv)[:200],
    )
    os.ftruncate(handle, 0)
    os.pwrite(handle, json.dumps(asdict(holder)).encode(), 0)


def login_name() -> str:
    """Return who runs this, as others are told."""
    try:
        return getuser()
    except (KeyError, OSError):  # a container may run as a number that no account has
        return f"user {os.getuid()}"


def _holder(handle: int) -> Holder | None:
    for _ in range(_LOOKS):
        holder = _signature(os.pread(handle, 4096, 0))
        if holder is not None and (holder.host != os.uname().nodename or is_alive(holder.pid)):
            return holder
        time.sleep(_PAUSE)
    return None


def _signature(text: bytes) -> Holder | None:
    try:
        read = json.loads(text)
        return Holder(read["user"], read["host"], int(read["pid"]), float(read["since"]), read["command"])
    except (ValueError, TypeError, KeyError):
        return None
