"""sshd of a session: one for each connection, as the person itself, with the variables of the run."""

import ctypes
import os
import pwd
import shlex
import shutil
import socket
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from ..program import ProgramError, run, write_text
from .sockets import say

# VS Code reaches its server by a forwarded port.
_SETTINGS = (
    *("UsePAM=no", "StrictModes=no", "PasswordAuthentication=no", "KbdInteractiveAuthentication=no", "PidFile=none"),
    *("AllowTcpForwarding=local", "AllowAgentForwarding=no", "PrintMotd=no", "PrintLastLog=no", "LogLevel=ERROR"),
)
_SFTP = "/usr/lib/openssh/sftp-server", "/usr/libexec/openssh/sftp-server", "/usr/lib/ssh/sftp-server"
# A login shell would set PATH anew.
_SHELL = 'cd {}\nif [ "$SSH_ORIGINAL_COMMAND" ]; then exec "$SHELL" -c "$SSH_ORIGINAL_COMMAND"; fi\nexec "$SHELL"\n'
# What sshd sets.
_NOT_GIVEN = {"SHELL", "USER", "LOGNAME", "TERM", "PWD", "OLDPWD", "SHLVL"}
_NAMES = "libnss_wrapper.so"
PRIVATE = "shell", "keys", "host_key"
"""Files in the folder of a session."""


class Sshd:
    """What a session needs for connections with a key, in a folder of this account alone."""

    def __init__(self, folder: Path, key: str, variables: Mapping[str, str]) -> None:
        self._program = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
        self._environment, self._words = dict(variables), ["-i", "-e", "-f", "/dev/null"]
        write_text(folder / "keys", f"{key}\n", 0o600)
        given = {name: value for name, value in variables.items() if name.isidentifier() and name not in _NOT_GIVEN}
        lines = [f"export {name}={shlex.quote(value)}\n" for name, value in given.items()]
        text = "#!/bin/sh\n" + "".join(lines) + _SHELL.format(shlex.quote(str(Path.cwd())))
        write_text(folder / "shell", text, 0o700)
        files = dict(zip(("ForceCommand", "AuthorizedKeysFile", "HostKey"), PRIVATE))
        settings = [*_SETTINGS, *(f"{name}={folder / file}" for name, file in files.items())]
        settings += [f"Subsystem=sftp {path}" for path in _SFTP if os.path.exists(path)][:1]  # noqa: PTH110  a word
        self._words += [word for setting in settings for word in ("-o", setting)]
        self._name(folder, key.rpartition(" ")[2])
        try:
            words = ("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / "host_key"))
            error = run(*words, environment=self._environment).error
        except ProgramError as missing:
            error = str(missing)
        if error or not self._program:
            self._program = None
            say(f"no ssh to this session: {error or 'sshd is not installed'}")

    def _name(self, folder: Path, person: str) -> None:
        """Give an account that has no name here that of its person: sshd refuses others."""
        with suppress(KeyError):
            pwd.getpwuid(os.getuid())
            return
        home, shell = self._environment.get("HOME", "/"), shutil.which("bash") or "/bin/sh"
        write_text(folder / "passwd", f"{person}:x:{os.getuid()}:{os.getgid()}::{home}:{shell}\n")
        # Without a group `tty`, terminals stay those of the person.
        write_text(folder / "group", f"{person}:x:{os.getgid()}:\n")
        self._environment["LD_PRELOAD"] = _NAMES
        self._environment |= {f"NSS_WRAPPER_{name.upper()}": str(folder / name) for name in ("passwd", "group")}
        try:
            ctypes.CDLL(_NAMES)
        except OSError:
            say(f"the image has no {_NAMES}: sshd refuses an account without a name")

    def start(self, link: socket.socket) -> None:
        """Serve a connection."""
        with link:
            if self._program:
                words, pipe = (self._program, *self._words), link.fileno()
                subprocess.Popen(words, env=self._environment, stdin=pipe, stdout=pipe).wait()  # noqa: S603
