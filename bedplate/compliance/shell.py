"""One shell on a machine for all questions of an audit: a question costs a round trip, and no login.

Each command runs in a shell of its own below it, with nothing to read, so that none leaves anything to the next.
"""

import os
import secrets
import selectors
import shlex
import subprocess
import weakref
from contextlib import suppress
from time import monotonic
from typing import Any

from testinfra.backend.base import CommandResult
from testinfra.backend.ssh import SshBackend

# No terminal, no agent, no display; a key that is not known beforehand is refused.
_OPTIONS = "-T -a -x -o BatchMode=yes -o StrictHostKeyChecking=yes -o LogLevel=ERROR -o ControlMaster=no"
# Answers and refusals are read in plain English, whatever language the operator's terminal brings along.
_PLAIN = "env --unset=LANGUAGE LC_ALL=C.UTF-8"
_UNREACHED = 255
# How long one command may take, and on a machine on which one has taken longer, each of those after it: whatever waits
# there for a file server that is gone would wait again.
_PATIENCE_SECONDS, _HASTE_SECONDS = 60, 5
# What timeout(1) ends with: the command's end at a signal, or at the second, which nothing outlives.
_TIMED_OUT = {124, 128 + 9}
_KILL_SECONDS = 5
_END_SECONDS = 5


class SilenceError(Exception):
    """A command that did not end in its time: what it was to see, nobody has seen."""


class ShellBackend(SshBackend):  # type: ignore[misc]  # testinfra ships no types
    """Testinfra's way to a machine, as `shell://NAME`: as root by sudo where sudo is asked for."""

    NAME = "shell"

    def __init__(self, hostspec: str, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401  testinfra's own signature
        super().__init__(hostspec, *args, **{**kwargs, "ssh_extra_args": _OPTIONS})
        self._shell: subprocess.Popen[bytes] | None = None
        self._patience = _PATIENCE_SECONDS

    def run(self, command: str, *args: str, **kwargs: Any) -> CommandResult:  # noqa: ANN401, ARG002  as above
        """Run a command on the machine.

        Raises RuntimeError, with what OpenSSH said, where it is not reached, and SilenceError where it takes too long.
        """
        as_another = self.sudo and self.sudo_user
        words = self.get_command(command, *args) if as_another else self.quote(command, *args)
        if self._shell is None:
            self._shell = self._opened()
        status, out, err = self._asked(self._shell, words)
        answer = self.result(status, self.encode(words), out, err)
        if status == _UNREACHED and self._shell.poll() is not None:
            self._shell = None
            raise RuntimeError(answer)
        return answer

    def _asked(self, shell: subprocess.Popen[bytes], words: str) -> tuple[int, bytes, bytes]:
        try:
            return asked(shell, words, self._patience)
        except TimeoutError:
            told = f"no answer within {self._patience} s: {words}"
            self._patience = _HASTE_SECONDS
            raise SilenceError(told) from None

    def _opened(self) -> subprocess.Popen[bytes]:
        pipe = subprocess.PIPE
        shell = subprocess.Popen(["/bin/sh", "-c", f"exec {self._line()}"], stdin=pipe, stdout=pipe, stderr=pipe)
        weakref.finalize(self, ended, shell)
        return shell

    def _line(self) -> str:
        command, arguments = self._build_ssh_command(f"exec {self._far_end()}")
        return str(self.quote(" ".join(command), *arguments))

    def _far_end(self) -> str:
        return f"{_PLAIN} {'sudo -n sh' if self.sudo else 'sh'}"


class HereBackend(ShellBackend):
    """The same for this machine, as `here://NAME`: without SSH."""

    NAME = "here"

    def _line(self) -> str:
        return self._far_end()


def asked(shell: subprocess.Popen[bytes], command: str, seconds: float = _PATIENCE_SECONDS) -> tuple[int, bytes, bytes]:
    """Return the status of a command, what it said and what it complained of; raises TimeoutError where it was ended.

    A shell that does not even tell that is ended too, and answers as one that is gone.
    """
    mark = secrets.token_hex(16)
    bounded = f"timeout --kill-after={_KILL_SECONDS} {seconds} sh -c {shlex.quote(command)}"
    line = f"{bounded} </dev/null; printf '\\n{mark} %d\\n' $?; printf '\\n{mark}\\n' >&2\n"
    begun = monotonic()
    assert shell.stdin
    with suppress(BrokenPipeError):
        shell.stdin.write(line.encode())
        shell.stdin.flush()
    said, complained = _read(shell, f"\n{mark}".encode(), begun + seconds + 2 * _KILL_SECONDS)
    out, found, rest = said.partition(f"\n{mark} ".encode())
    err = complained.partition(f"\n{mark}\n".encode())[0]
    if not found:
        ended(shell)
        return _UNREACHED, out, err
    if int(rest) in _TIMED_OUT and monotonic() - begun >= seconds:
        raise TimeoutError(command)
    return int(rest), out, err


def _read(shell: subprocess.Popen[bytes], mark: bytes, end: float) -> tuple[bytes, bytes]:
    """Read both streams until each has shown the mark and the end of its line, or has ended, or it is the end."""
    assert shell.stdout
    assert shell.stderr
    texts: dict[int, bytes] = {shell.stdout.fileno(): b"", shell.stderr.fileno(): b""}
    with selectors.DefaultSelector() as streams:
        for stream in texts:
            streams.register(stream, selectors.EVENT_READ)
        while streams.get_map() and monotonic() < end:
            _take(streams, texts, mark)
    said, complained = texts.values()
    return said, complained


def _take(streams: selectors.BaseSelector, texts: dict[int, bytes], mark: bytes) -> None:
    for key, _ in streams.select(timeout=1):
        more = os.read(key.fd, 65536)
        texts[key.fd] += more
        if not more or b"\n" in texts[key.fd].partition(mark)[2]:
            streams.unregister(key.fd)


def ended(shell: subprocess.Popen[bytes]) -> None:
    """End a shell, if it has not ended."""
    for stream in (shell.stdin, shell.stdout, shell.stderr):
        if stream:
            with suppress(BrokenPipeError):
                stream.close()
    with suppress(subprocess.TimeoutExpired):
        shell.wait(_END_SECONDS)
    shell.kill()
    shell.wait()
