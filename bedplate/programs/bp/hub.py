"""The hub as a person reaches it: one trusted certificate, a token by ssh, and requests with limits."""

import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any

from ..connection import AWAY, CERTIFICATE, CLOCK, FILE, REFUSED, Connection, HubError

WRONG, MISSING, HELD, PARTLY = 2, 4, 5, 6
"""Exit codes: wrong input; what bp needs is missing or does not answer; another process has it; partly done."""
# Seconds: after the second, the last copy of `fleet.json` is as good.
_SSH_TIMEOUT, _COPY_TIMEOUT, _SCHEMA, _AT_ONCE = 60, 5.0, 1, 8
# Seconds: a token is valid for an hour. A wrong clock of the laptop measures its age as well as a right one.
_TOKEN_LIFE = 3_300
# Seconds: the hub waits ten for the scope of a token.
_LOGIN = 8.0
_TOKEN = re.compile(r"[0-9]{1,10}\.[0-9]{1,12}\.[a-z0-9:_-]{1,90}\.[A-Za-z0-9_-]{1,90}")
SSH_OPTIONS = (
    "-T -a -x -o KnownHostsCommand=none -o RemoteCommand=none -o ControlPath=none -o ClearAllForwardings=yes "
    "-o PreferredAuthentications=publickey -o LogLevel=ERROR"
)
"""What comes before the archive's and the person's own settings."""
_VPN, ARCHIVE = "connect the VPN; if it is connected, ask your operator about the hub", "ask for a new archive"
# What a repeat does not change. An empty fix is that of the caller.
_SSH_ERRORS = (
    ("REMOTE HOST IDENTIFICATION", "the host key of {} is another one than bp knows", ""),
    ("Host key verification failed|No .* host key", "bp has no host key of {}", ""),
    ("Permission denied", "{} accepts none of your SSH keys", "select that of README.txt in ~/.ssh/config"),
    ("(?i)bad .*configuration option", "this ssh is too old", "install OpenSSH 8.5 or newer"),
    ("Could not resolve", "the name of {} has no address", "look for its Host in ~/.ssh/config"),
)
_SSH_AWAY = "timed out|[Nn]o route|unreachable|refused|reset|closed by"
_FIXES = {
    CERTIFICATE: f"{ARCHIVE}, and tell your operator why",
    CLOCK: "set its clock",
    AWAY: "try again, or ask your operator",
    REFUSED: "`bp doctor` looks for the cause",
    FILE: "make room, or name another folder",
}


class BpError(HubError):
    """A problem in words, its fix, the exit code, and the status of the hub's answer if it refused a request."""

    def __init__(self, what: str, fix: str = "", code: int = MISSING, status: int = 0) -> None:
        super().__init__(what, status=status)
        self.fix, self.code = fix, code


class PrintedError(BpError):
    """A failure whose reason a machine has printed as an error."""


@dataclass(frozen=True)
class Settings:
    """Whose archive this is, and its hub: `node` is its name for ssh, `host` that of its certificate."""

    fleet: str
    person: str
    node: str
    host: str
    address: str
    certificate: str
    version: str
    folder: Path = Path()
    port: int = 443
    document: Mapping[str, Any] = field(default_factory=dict)
    """A first copy of `fleet.json`."""
    cluster: Mapping[str, Any] = field(default_factory=dict)
    """How the person reaches the cluster; empty without one."""


def load_settings(program: Path) -> Settings:
    """Return what `bp.json` says, which is beside bp. Raises BpError."""
    path = program.resolve().with_name("bp.json")
    try:
        return Settings(**json.loads(path.read_text(encoding="utf-8")), folder=path.parent)
    except FileNotFoundError:
        raise BpError(f"{path} does not exist", "run bp in the folder of the archive, or by a link to it") from None
    except (OSError, ValueError, TypeError):
        raise BpError(f"cannot read {path}", "unpack the archive again") from None


class Hub(Connection):
    """The hub of an archive. Methods raise BpError."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._lock, self._known = Lock(), ""
        self._login: subprocess.Popen[bytes] | None = None
        self._logged_in = 0.0
        caches = os.environ.get("XDG_CACHE_HOME", "")
        folder = Path(caches) if caches.startswith("/") else Path("~/.cache").expanduser()
        self.folder = folder / "bedplate" / settings.fleet
        self._cache = self.folder / "token"
        self._document: Mapping[str, Any] = {}
        url = f"https://{settings.host}:{settings.port}"
        super().__init__(url, settings.certificate, self.token, settings.address)
        self.facts = {"schema": 1, "hub": url, "address": settings.address, "certificate": settings.certificate}
        """What an agent gets to reach the hub."""

    def token(self, refused: str = "") -> str:
        """Return the token of the cache; a new one if it is missing, old, or refused by the hub."""
        with self._lock:
            for token in (_read_token(self._cache), self._known):
                if token not in {"", refused}:
                    return token
            return self.new_token()

    def new_token(self) -> str:
        """Return a token by ssh, and keep it."""
        self._known = self._token_of(self._log_in())
        # Without a cache each command asks anew.
        with suppress(OSError):
            _write(self._cache, self._known)
        return self._known

    def fleet(self) -> Mapping[str, Any]:
        """Return `fleet.json`, asked for once; without an answer the last copy, else that of the archive."""
        if self._document:
            return self._document
        copy, document = self.folder / "fleet.json", self.settings.document
        try:
            document = self.call("/fleet.json", patience=_COPY_TIMEOUT)
            with suppress(OSError):
                _write(copy, json.dumps(document))
        except BpError:
            with suppress(OSError, ValueError):
                document = json.loads(copy.read_text(encoding="utf-8"))
        if not isinstance(document, dict) or document.get("schema") != _SCHEMA:
            raise BpError("the hub's fleet.json is of another version", ARCHIVE)
        self._document = document
        return document

    def ssh_words(self, name: str) -> Sequence[str]:
        """Return the words of ssh for a machine, which must have the host key of `fleet.json`. Raises BpError."""
        document, keys = self.fleet(), self.folder / "known_hosts"
        machines, domain = document["machines"], document["domain"]
        machine = machines.get(name)
        if machine is None or not machine["ssh"]:
            names = ", ".join(name for name, facts in machines.items() if facts["ssh"]) or "none"
            raise BpError(f"people log in to no machine {name}", f"those of {document['fleet']}: {names}", WRONG)
        if not machine["host_key"]:
            raise BpError(f"the host key of {name} is not verified", "try again in a minute, or ask your operator")
        lines = [f"{name}.{domain} {facts['host_key']}\n" for name, facts in machines.items() if facts["host_key"]]
        try:
            _write(keys, "".join(lines))
        except OSError as error:
            raise BpError(f"cannot write {keys}: {error.strerror}") from None
        host = ("-o", f"HostKeyAlias={name}.{domain}", "-o", f"HostName={machine['address']}")
        return (*_trusting(keys), "-o", "StrictHostKeyChecking=yes", *host, "-l", self.settings.person, name)

    def ask(self, name: str, command: str, text: str = "") -> str:
        """Return what a command on a machine prints for a text; ssh asks the person nothing. Raises BpError."""
        options = (*SSH_OPTIONS.split(), "-o", "BatchMode=yes", "-o", "ConnectTimeout=10")
        process = _start_ssh(("ssh", *options, *self.ssh_words(name), command))
        status, output, errors = _end_ssh(process, text)
        if status:
            raise BpError(errors.splitlines()[-1] if errors else f"status {status}")
        return output

    def prepare_token(self) -> "subprocess.Popen[bytes]":
        """Return the login for the token of a run, whose id will be known later; a new one if it is missing or old."""
        if self._login is None or time.monotonic() - self._logged_in > _LOGIN:
            self._login, self._logged_in = self._log_in("-"), time.monotonic()
        return self._login

    def run_token(self, run: str) -> str:
        """Return the token of a run by its id in MLflow."""
        login, self._login = self.prepare_token(), None
        return self._token_of(login, f"run:{run}\n")

    def study_token(self, study: str) -> str:
        """Return the token of a study by its name."""
        return self._token_of(self._log_in("-"), f"study:{study}\n")

    def abort(self) -> None:
        """End what is under way, also in other threads."""
        if self._login:
            self._login.kill()
        super().abort()

    def _log_in(self, *words: str) -> "subprocess.Popen[bytes]":
        """Start `bp-token` by ssh, which may ask the person for the passphrase of a key."""
        folder = self.settings.folder
        options = ("-F", str(folder / "bp.config"), *_trusting(folder / "known_hosts"), *SSH_OPTIONS.split())
        return _start_ssh(("ssh", *options, self.settings.node, "bp-token", *words))

    def _token_of(self, process: "subprocess.Popen[bytes]", scope: str = "") -> str:
        """Return the token for a scope, which is the input of `bp-token`."""
        status, token, errors = _end_ssh(process, scope)
        if status == 0 and _TOKEN.fullmatch(token):
            return token
        check_ssh(errors, "the hub", ARCHIVE)
        if re.search(_SSH_AWAY, errors):
            raise BpError("the hub does not answer to ssh", _VPN)
        reason = errors.splitlines()[-1] if errors else "no token in its answer"
        raise BpError(f"the hub gives no token: {reason}", "ask your operator")

    def failure(self, what: str, reason: str, status: int = 0) -> BpError:
        """Return the problem of a request, with its fix."""
        return BpError(what, _FIXES[reason], status=status)

    def reach(self) -> socket.socket:
        """Return a connection to the hub; ConnectionError if its machine answers, and nginx does not."""
        try:
            return super().reach()
        except ConnectionError:
            raise
        except OSError:
            raise BpError(f"the hub does not answer at {self.address}", _VPN) from None


def ask_all(places: Sequence[str], ask: Callable[[str], Mapping[str, Any]]) -> Mapping[str, Mapping[str, Any]]:
    """Return what each place answers, eight at once, or its `error`."""

    def answer(place: str) -> Mapping[str, Any]:
        try:
            return ask(place)
        except (BpError, LookupError, ValueError, TypeError) as error:
            return {"error": str(error)}

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return dict(zip(places, pool.map(answer, places)))


def answer_lines(answers: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Yield the places with the `lines` that each has answered, or its `error`."""
    for name, answer in answers.items():
        yield f"{name}: {answer['error']}" if "error" in answer else name
        yield from (f"  {line}" for line in answer.get("lines", ()))


def _start_ssh(command: Sequence[str]) -> "subprocess.Popen[bytes]":
    pipe = subprocess.PIPE
    try:
        return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe)  # noqa: S603  a machine of the fleet
    except OSError as error:
        raise BpError(f"cannot run ssh: {error.strerror}", "install OpenSSH 8.5 or newer") from None


def _end_ssh(process: "subprocess.Popen[bytes]", text: str) -> tuple[int, str, str]:
    """Return the exit status of an ssh that gets a text, its output and its errors. Raises BpError."""
    try:
        streams = process.communicate(text.encode(), _SSH_TIMEOUT)
    except subprocess.TimeoutExpired:
        raise BpError(f"no answer by ssh within {_SSH_TIMEOUT} s", _VPN) from None
    finally:
        # Also after Ctrl-C.
        process.kill()
    output, errors = (stream.decode(errors="replace").strip() for stream in streams)
    return process.returncode, output, errors


def check_ssh(errors: str, name: str, fix: str) -> None:
    """Raise BpError if these words of ssh have a reason for which it never connects to a machine."""
    for pattern, what, own in _SSH_ERRORS:
        if re.search(pattern, errors):
            raise BpError(what.format(name), own or fix)


def _trusting(keys: Path) -> Sequence[str]:
    """Return the words of ssh to accept only the host keys of a file."""
    file = str(keys).replace("%", "%%")
    return ("-o", f'UserKnownHostsFile="{file}"', "-o", "GlobalKnownHostsFile=none")


def _write(path: Path, text: str) -> None:
    """Replace a file of this account that nobody else reads. Raises OSError."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=path.parent)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
    Path(name).replace(path)


def printable(text: str) -> str:
    """Return a text of others without characters that control a terminal."""
    return "".join(char if char.isprintable() else "?" for char in text)


def say(*lines: str) -> None:
    """Write lines of bp itself, which are no output of a program."""
    sys.stderr.write("".join(f"{printable(line)}\n" for line in lines))


def write(data: bytes, descriptor: int = 1) -> None:
    """Write all of the output of a program. Raises OSError."""
    while data:
        data = data[os.write(descriptor, data) :]


def _read_token(path: Path) -> str:
    """Return the token of a file that nobody else reads or replaces; empty without one, or if it is too old."""
    with suppress(OSError, ValueError):
        facts, folder = path.stat(), path.parent.stat()
        is_own = facts.st_uid == folder.st_uid == os.getuid()
        is_private = is_own and not facts.st_mode & 0o077 and not folder.st_mode & 0o022
        if is_private and 0 <= time.time() - facts.st_mtime < _TOKEN_LIFE:
            token = path.read_text(encoding="ascii")
            return token if _TOKEN.fullmatch(token) else ""
    return ""
