"""Testinfra backends that run all commands of an audit in one root shell, because a login takes several round trips.

Each command runs in its own subshell without input, so no command affects the next one.
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

# No terminal, agent or display. Unknown host keys are refused.
_SSH_OPTIONS = "-T -a -x -o BatchMode=yes -o StrictHostKeyChecking=yes -o LogLevel=ERROR -o ControlMaster=no"
# The rules parse English output, whatever the locale of the operator's terminal is.
_ENGLISH = "env --unset=LANGUAGE --unset=PYTHONPATH LC_ALL=C.UTF-8"
_UNREACHED = 255
# Timeout of a command, and of all later commands on a node where one timed out: each access to a failed file server
# would wait again.
_TIMEOUT_SECONDS, _SHORT_TIMEOUT_SECONDS = 60, 5
# Exit codes of timeout(1): after SIGTERM, and after SIGKILL.
_TIMED_OUT = {124, 128 + 9}
_KILL_SECONDS = 5
_EXIT_SECONDS = 5


class NoAnswerError(Exception):
    """A command that timed out, so its rule cannot be judged."""


class ShellBackend(SshBackend):  # type: ignore[misc]  # testinfra ships no types
    """Testinfra backend `shell://NAME`: one SSH connection, with sudo if requested."""

    NAME = "shell"

    def __init__(self, hostspec: str, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401  testinfra's own signature
        super().__init__(hostspec, *args, **{**kwargs, "ssh_extra_args": _SSH_OPTIONS})
        self._shell: subprocess.Popen[bytes] | None = None
        self._timeout = _TIMEOUT_SECONDS

    def run(self, command: str, *args: str, **kwargs: Any) -> CommandResult:  # noqa: ANN401, ARG002  as above
        """Run a command on the node.

        Raises RuntimeError with the result of OpenSSH if the node is unreachable, and NoAnswerError after a timeout.
        """
        is_other_user = self.sudo and self.sudo_user
        line = self.get_command(command, *args) if is_other_user else self.quote(command, *args)
        if self._shell is None:
            self._shell = self._open_shell()
        status, out, err = self._run_line(self._shell, line)
        result = self.result(status, self.encode(line), out, err)
        if status == _UNREACHED and self._shell.poll() is not None:
            self._shell = None
            raise RuntimeError(result)
        return result

    def _run_line(self, shell: subprocess.Popen[bytes], line: str) -> tuple[int, bytes, bytes]:
        try:
            return run_in_shell(shell, line, self._timeout)
        except TimeoutError:
            message = f"no answer within {self._timeout} s: {line}"
            self._timeout = _SHORT_TIMEOUT_SECONDS
            raise NoAnswerError(message) from None

    def _open_shell(self) -> subprocess.Popen[bytes]:
        pipe = subprocess.PIPE
        shell = subprocess.Popen(
            ["/bin/sh", "-c", f"exec {self._shell_command()}"], stdin=pipe, stdout=pipe, stderr=pipe
        )
        weakref.finalize(self, end_shell, shell)
        return shell

    def _shell_command(self) -> str:
        command, arguments = self._build_ssh_command(f"exec {self._remote_command()}")
        return str(self.quote(" ".join(command), *arguments))

    def _remote_command(self) -> str:
        return f"{_ENGLISH} {'sudo -n sh' if self.sudo else 'sh'}"


class LocalBackend(ShellBackend):
    """Testinfra backend `here://NAME`: this machine, without SSH."""

    NAME = "here"

    def _shell_command(self) -> str:
        return self._remote_command()


def run_in_shell(
    shell: subprocess.Popen[bytes], command: str, seconds: float = _TIMEOUT_SECONDS
) -> tuple[int, bytes, bytes]:
    """Run a command in an open shell; return its exit code, stdout and stderr. Raises TimeoutError.

    A shell that does not report the exit code in time is ended, and the exit code is 255.
    """
    mark = secrets.token_hex(16)
    limited = f"timeout --kill-after={_KILL_SECONDS} {seconds} sh -c {shlex.quote(command)}"
    line = f"{limited} </dev/null; printf '\\n{mark} %d\\n' $?; printf '\\n{mark}\\n' >&2\n"
    start = monotonic()
    assert shell.stdin
    with suppress(BrokenPipeError):
        shell.stdin.write(line.encode())
        shell.stdin.flush()
    stdout, stderr = _read(shell, f"\n{mark}".encode(), start + seconds + 2 * _KILL_SECONDS)
    out, separator, status = stdout.partition(f"\n{mark} ".encode())
    err = stderr.partition(f"\n{mark}\n".encode())[0]
    if not separator:
        end_shell(shell)
        return _UNREACHED, out, err
    if int(status) in _TIMED_OUT and monotonic() - start >= seconds:
        raise TimeoutError(command)
    return int(status), out, err


def _read(shell: subprocess.Popen[bytes], mark: bytes, deadline: float) -> tuple[bytes, bytes]:
    """Read stdout and stderr until each has a complete line with the mark, is closed, or the deadline has passed."""
    assert shell.stdout
    assert shell.stderr
    texts: dict[int, bytes] = {shell.stdout.fileno(): b"", shell.stderr.fileno(): b""}
    with selectors.DefaultSelector() as streams:
        for stream in texts:
            streams.register(stream, selectors.EVENT_READ)
        while streams.get_map() and monotonic() < deadline:
            _read_available(streams, texts, mark)
    stdout, stderr = texts.values()
    return stdout, stderr


def _read_available(streams: selectors.BaseSelector, texts: dict[int, bytes], mark: bytes) -> None:
    for key, _ in streams.select(timeout=1):
        chunk = os.read(key.fd, 65536)
        texts[key.fd] += chunk
        if not chunk or b"\n" in texts[key.fd].partition(mark)[2]:
            streams.unregister(key.fd)


def end_shell(shell: subprocess.Popen[bytes]) -> None:
    """Close a shell's streams, and kill it if it does not exit."""
    for stream in (shell.stdin, shell.stdout, shell.stderr):
        if stream:
            with suppress(BrokenPipeError):
                stream.close()
    with suppress(subprocess.TimeoutExpired):
        shell.wait(_EXIT_SECONDS)
    shell.kill()
    shell.wait()
