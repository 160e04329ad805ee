"""Commands on a machine over SSH, and the errors of a login, recognised by the output of ssh and sudo.

These start ssh by themselves: the agent of an apply (`roles.engine.connection`) and an upgrade (`nodes.upgrade`) report
while they run, a scan of host keys (`nodes.host_keys`) does not log in, and `bedplate ssh` has the operator's terminal.
"""

import re
import shlex
import subprocess
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from io import BufferedReader
from threading import Thread
from typing import IO

from bedplate.errors import HeldError, MachineError
from bedplate.nodes.apply import NodeError, NodeErrorKind, Target

MAX_OUTPUT = 1 << 20
"""Bytes of the output of a command by default."""
# What ssh returns if it could not run the command (ssh(1), "EXIT STATUS").
_SSH_FAILED = 255
# Seconds for the last output after ssh has ended: a process that ssh leaves behind may keep its pipes open.
_FLUSH_SECONDS = 2
_SHOWN_LINES, _SHOWN_WIDTH = 3, 200


@dataclass(frozen=True, slots=True)
class KnownError:
    """An error that is recognised by a pattern in the output of a command."""

    pattern: str
    kind: NodeErrorKind
    what: str
    fix: str


LOGIN_DENIED = "login refused for this account"
_SSH = (
    KnownError(
        "REMOTE HOST IDENTIFICATION HAS CHANGED",
        NodeErrorKind.REFUSED,
        "host key differs from the recorded key: a reinstalled machine, another machine, or an attack",
        "compare the key with the machine's console; for a reinstalled machine of a site run "
        "`bedplate node trust {node} SHA256:... --replace`, for a machine of a group `bedplate node trust {node}`",
    ),
    KnownError(
        r"No .* host key is known|Host key verification failed",
        NodeErrorKind.REFUSED,
        "host key not recorded",
        "read the fingerprint at the machine's console, then run `bedplate node trust {node} SHA256:...`",
    ),
    KnownError(
        "Too many authentication failures",
        NodeErrorKind.UNREACHED,
        "too many keys: sshd accepts three attempts, and the SSH agent offered other keys first",
        "name the key with --identity FILE or in ~/.ssh/config, and set `IdentitiesOnly yes` there",
    ),
    KnownError(
        r"Permission denied \(",
        NodeErrorKind.UNREACHED,
        LOGIN_DENIED,
        "name another account with --user or another key with --identity, or both with --ssh-config FILE; "
        "a new cloud machine accepts only administrators, a new machine of a site only `ubuntu`",
    ),
    KnownError(
        "Could not resolve hostname",
        NodeErrorKind.UNREACHED,
        "its name does not resolve",
        "connect the VPN; `bedplate node list --live` lists the running machines",
    ),
    KnownError(
        r"Connection (timed out|refused|reset)|No route to host|Network is unreachable|Operation timed out",
        NodeErrorKind.UNREACHED,
        "no response on the SSH port",
        "check that the machine is on and the VPN connected; `bedplate reach` shows the path",
    ),
)
_SUDO = (
    KnownError(
        r"a (terminal|password) is required|no password was provided",
        NodeErrorKind.UNREACHED,
        "sudo asks for a password",
        "allow sudo without a password for the account: see `bedplate node bootstrap {node}`",
    ),
    KnownError(
        "is not in the sudoers file|is not allowed to execute|may not run sudo",
        NodeErrorKind.UNREACHED,
        "this account has no sudo rights",
        "use the account of an administrator, or name that of the installation with --user",
    ),
    KnownError(
        "sudo: (command )?not found|sudo: No such file",
        NodeErrorKind.UNREACHED,
        "sudo is missing",
        "install sudo on the node",
    ),
    KnownError(
        r"python3: (command )?not found", NodeErrorKind.UNREACHED, "Python is missing", "install python3 on the node"
    ),
)
_COMMAND = (
    # A machine without a recorded host key is reached by the operator's own settings, which may not have its name.
    KnownError(
        "Could not resolve hostname",
        NodeErrorKind.UNREACHED,
        "its name does not resolve",
        "connect the VPN; if its host key is not recorded, run `bedplate node trust {node}`, pass --ssh-config FILE, "
        "or include what `bedplate node ssh-config --write FILE` writes in ~/.ssh/config",
    ),
    # With LogLevel=ERROR, ssh does not say that a machine has stopped to answer.
    KnownError(
        r"closed by remote host|\A\s*\Z",
        NodeErrorKind.UNREACHED,
        "the connection was lost",
        "check that the machine is on and the VPN connected, then run the command again",
    ),
)
_APPLY = "run `bedplate node apply {node}`"
_FAILED = NodeErrorKind.FAILED
# Messages of sudo, and of the programs of two roles.
_PROGRAMS = (
    KnownError("sudo: bedplate-member: command not found", _FAILED, "it lacks the role control", _APPLY),
    KnownError("^unknown command: ", _FAILED, "it has an older role control", _APPLY),
    KnownError("bedplate-hub: not found|hub-backup: not found", _FAILED, "it lacks the role hub", _APPLY),
    KnownError("sudo: bedplate-vpn: command not found", _FAILED, "it lacks the role vpnagent", _APPLY),
    KnownError("^bedplate-vpn: error: .*invalid choice: ", _FAILED, "it has an older role vpnagent", _APPLY),
)
_MORE = "`bedplate node logs {node}` shows more; then run the command again"


def run(
    target: Target,
    *command: str,
    stdin: bytes | IO[bytes] = b"",
    limit: int = MAX_OUTPUT,
    timeout: float = 30,
    fix: str = _MORE,
) -> str:
    """Run a command on a machine, and return its output. The machine's shell gets each word quoted.

    Raises NodeError if the machine is not reached, the command fails or writes more than `limit` bytes, or it has not
    ended after `timeout` seconds. `fix` is that of a failure without a known cause. Raises MachineError if ssh does not
    start.
    """
    name = target.node.name
    try:
        status, output, errors = _exchange((*target.argv, shlex.join(command)), stdin, limit, timeout)
    except OSError as error:
        raise MachineError(f"ssh does not start: {error.strerror}", fix="install OpenSSH's client") from None
    except subprocess.TimeoutExpired:
        raise timeout_error(timeout, "a command") from None
    if status:
        raise _command_error(name, status, errors.decode(errors="replace"), fix.format(node=name))
    if len(output) > limit:
        raise NodeError(NodeErrorKind.FAILED, f"its output has more than {limit:,} bytes", fix.format(node=name))
    return output.decode(errors="replace")


def _exchange(
    argv: tuple[str, ...], stdin: bytes | IO[bytes], limit: int, timeout: float
) -> tuple[int, bytearray, bytearray]:
    """Run a command; return its exit status and the beginnings of its outputs, one byte over the limit at most."""
    pipe = subprocess.PIPE
    process = subprocess.Popen(  # noqa: S603  the machines of the plan
        argv, stdin=pipe if isinstance(stdin, bytes) else stdin, stdout=pipe, stderr=pipe
    )
    output, errors = bytearray(), bytearray()
    threads = [
        Thread(target=_drain, args=(process.stdout, output, limit), daemon=True),
        Thread(target=_drain, args=(process.stderr, errors, MAX_OUTPUT), daemon=True),
    ]
    if isinstance(stdin, bytes):
        threads.append(Thread(target=_feed, args=(process.stdin, stdin), daemon=True))
    for thread in threads:
        thread.start()
    try:
        status = process.wait(timeout)
    except BaseException:
        process.kill()
        process.wait()
        raise
    for thread in threads:
        thread.join(_FLUSH_SECONDS)
    return status, output, errors


def _feed(stream: IO[bytes], data: bytes) -> None:
    # The command may end before it has read all.
    with suppress(BrokenPipeError), stream:
        stream.write(data)


def _drain(stream: BufferedReader, data: bytearray, limit: int) -> None:
    """Read a stream to its end, and keep its beginning: a machine can send any amount."""
    with stream:
        while part := stream.read1():
            data += part[: limit + 1 - len(data)]


def _command_error(node: str, status: int, output: str, fix: str) -> NodeError:
    if status == _SSH_FAILED:
        error = find_known_error(node, output, _COMMAND) or login_error(node, output)
        return NodeError(error.kind, error.words, error.fix)
    what = last_lines(output) or "failed with no error output"
    if status == HeldError.exit_code:
        return NodeError(NodeErrorKind.HELD, what, "wait until that command has ended, then run yours again")
    return find_known_error(node, output, (*_SUDO, *_PROGRAMS)) or NodeError(NodeErrorKind.FAILED, what, fix)


def login_error(node: str, output: str) -> NodeError:
    """Return why a login failed, from the output of ssh and of the node."""
    return find_known_error(node, output, (*_SSH, *_SUDO)) or NodeError(
        NodeErrorKind.UNREACHED, f"login failed: {last_lines(output) or 'no error output'}", "try `ssh -v` by hand"
    )


def timeout_error(seconds: float, request: str = "a query") -> NodeError:
    """Return the error of a node that did not answer a request within so many seconds."""
    what = f"no answer to {request} within {seconds:g} s"
    # The same again: an image that a registry sends slowly, for example, is complete by then.
    fix = (
        "run the same command again; after two timeouts look for a hanging process on the node (`ps -ef`), "
        "often due to a failed disk or NFS server"
    )
    return NodeError(NodeErrorKind.UNREACHED, what, fix)


def find_known_error(node: str, output: str, errors: Iterable[KnownError]) -> NodeError | None:
    """Return the first of these errors whose pattern is in the output, or None."""
    for error in errors:
        if re.search(error.pattern, output, re.MULTILINE):
            detail = last_lines(output).rpartition(" / ")[2]
            return NodeError(error.kind, error.what, error.fix.format(node=node), detail)
    return None


def last_lines(output: str) -> str:
    """Return the end of an output in one line, without characters that control a terminal."""
    # Control characters of a node must not reach the operator's terminal.
    printable = "".join(char if char.isprintable() or char in "\r\n" else "?" for char in output)
    lines = [line.strip() for line in printable.splitlines() if line.strip()]
    return " / ".join(lines[-_SHOWN_LINES:])[-_SHOWN_WIDTH:]
