"""What the programs share: one way to run another program, one to replace a file, and the error of both."""

import os
import select
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, ClassVar

LARGEST = 1 << 25
"""Bytes of output at which a program is killed; the kernel's log of a month has less."""
_LATE = "did not end within"
# Seconds between two looks at the size of the output.
_LOOK = 0.2
# A killed program that waits for a failed disk or file server does not end.
_KILL_WAIT = 2.0
_SHOWN_LINES, _SHOWN_WIDTH = 3, 200


class ProgramError(Exception):
    """The program cannot go on; the text says why. `status` is its exit status."""

    status: ClassVar[int] = 1


class MissingProgramError(ProgramError):
    """Another program is not installed."""


@dataclass(frozen=True)
class Result:
    """The end of another program; `limit` says at which limit it was killed, empty if it ended by itself."""

    command: Sequence[str]
    status: int
    out: bytes
    err: bytes
    limit: str = ""

    @property
    def text(self) -> str:
        """The standard output."""
        return self.out.decode(errors="replace")

    @property
    def is_late(self) -> bool:
        """Whether it was killed at its time limit."""
        return self.limit.startswith(_LATE)

    @property
    def error(self) -> str:
        """Why it failed, from the end of its output; empty after a success."""
        name = " ".join((Path(self.command[0]).name, *self.command[1:2]))
        lines = (self.err.strip() or self.out).decode(errors="replace").splitlines()
        words = " / ".join([line.strip() for line in lines if line.strip()][-_SHOWN_LINES:])[-_SHOWN_WIDTH:]
        if self.limit:
            return f"{name} {self.limit}"
        return f"{name} failed: {words or f'exit status {self.status}'}" if self.status else ""


def run(
    *command: str,
    data: bytes = b"",
    seconds: float = 60.0,
    folder: str = ".",
    environment: "Mapping[str, str] | None" = None,
    handles: Sequence[int] = (),
) -> Result:
    """Run another program with `data` as its input, and open `handles`. Raises ProgramError if it cannot be started.

    Its output goes to files in memory: a service that it starts would keep a pipe open, and the disk may be full.
    """
    with _memory(data) as given, _memory() as out, _memory() as err:
        try:
            process = subprocess.Popen(  # noqa: S603  the commands of the callers, without a shell
                command,
                stdin=given,
                stdout=out,
                stderr=err,
                start_new_session=True,
                cwd=folder,
                env=environment,
                pass_fds=handles,
            )
        except FileNotFoundError:
            raise MissingProgramError(f"{command[0]} is not installed") from None
        except OSError as error:
            raise ProgramError(f"{command[0]} cannot be started: {error.strerror}") from None
        limit = "was interrupted"
        try:
            limit = _wait(process.pid, (out, err), seconds)
        finally:
            if limit:
                os.killpg(process.pid, signal.SIGKILL)
            with suppress(subprocess.TimeoutExpired):
                process.wait(_KILL_WAIT)
        # Without a status it was killed, and could not end.
        return Result(
            command, -signal.SIGKILL if process.poll() is None else process.returncode, _read(out), _read(err), limit
        )


def output(*command: str, text: str = "", seconds: float = 60.0) -> str:
    """Return what another program prints. Raises ProgramError if it fails."""
    result = run(*command, data=text.encode(), seconds=seconds)
    if result.error:
        raise ProgramError(result.error)
    return result.text


def _memory(data: bytes = b"") -> IO[bytes]:
    file = os.fdopen(os.memfd_create("bedplate"), "w+b")
    file.write(data)
    file.seek(0)
    return file


def _read(file: IO[bytes]) -> bytes:
    file.seek(0)
    return file.read(LARGEST)


def _wait(process: int, files: Sequence[IO[bytes]], seconds: float) -> str:
    """Wait for the end of a process; return the limit that it reaches before, empty if it ends."""
    deadline, handle = time.monotonic() + seconds, os.pidfd_open(process)
    try:
        while not select.select((handle,), (), (), max(0.0, min(_LOOK, deadline - time.monotonic())))[0]:
            if time.monotonic() >= deadline:
                return f"{_LATE} {seconds:.0f} s"
            if any(os.fstat(file.fileno()).st_size > LARGEST for file in files):
                return f"printed more than {LARGEST >> 20} MiB"
    finally:
        os.close(handle)
    return ""


Owner = tuple[int, int]
"""A user and a group; -1 for those of this process."""


def stage(path: Path, data: bytes, mode: int = 0o644, owner: Owner = (-1, -1)) -> Path:
    """Write a new file beside a path, and sync it to disk; return its path. Others cannot read it before."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fchown(handle, *owner)
            os.fchmod(handle, mode)
            os.fsync(handle)
    except BaseException:
        Path(name).unlink()
        raise
    return Path(name)


def replace(new: Path, path: Path) -> None:
    """Move a staged file to its path, and sync the folder to disk: after a power failure it is there."""
    new.replace(path)
    handle = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_file(path: Path, data: bytes, mode: int = 0o644, owner: Owner = (-1, -1)) -> None:
    """Replace a file: readers, and the disk after a power failure, have the old or the new content. Raises OSError."""
    new = stage(path, data, mode, owner)
    try:
        replace(new, path)
    finally:
        new.unlink(missing_ok=True)


def write_text(path: Path, text: str, mode: int = 0o644) -> None:
    """Replace a file as `write_file`, in a folder that is created if it is missing."""
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    write_file(path, text.encode(), mode)
