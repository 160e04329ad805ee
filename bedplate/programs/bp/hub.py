"""The hub as a person reaches it: one trusted certificate, a token by ssh, and requests with limits."""

import http.client
import json
import os
import re
import socket
import ssl
import subprocess
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from pathlib import Path
from threading import Lock, Timer
from typing import Any

WRONG, MISSING, HELD = 2, 4, 5
"""Exit codes: wrong input; something that bp needs is missing or does not answer; another process has it."""
# Seconds: for a request with its repeats, for its connection, and for ssh.
_PATIENCE, _CONNECT_TIMEOUT, _SSH_TIMEOUT = 15.0, 5.0, 60
_LARGEST = 64 << 20
# Seconds: a token is valid for an hour. A wrong clock of the laptop measures its age as well as a right one.
_TOKEN_LIFE = 3_300
_TOKEN = re.compile(r"[0-9]{1,10}\.[0-9]{1,12}\.[a-z0-9:_-]{1,90}\.[A-Za-z0-9_-]{1,90}")
SSH_OPTIONS = (
    "-T -a -x -o KnownHostsCommand=none -o RemoteCommand=none -o ControlPath=none -o ClearAllForwardings=yes "
    "-o PreferredAuthentications=publickey -o LogLevel=ERROR"
)
"""What comes before the archive's and the person's own settings."""
_VPN, ARCHIVE = "connect the VPN; if it is connected, ask your operator about the hub", "ask for a new archive"
_SSH_ERRORS = (
    ("REMOTE HOST IDENTIFICATION", "the host key of the hub differs from that of the archive", ARCHIVE),
    ("Host key verification failed|No .* host key", "the archive has no host key of the hub", ARCHIVE),
    ("Permission denied", "the hub accepts none of your SSH keys", "select that of README.txt in ~/.ssh/config"),
    ("(?i)bad .*configuration option", "this ssh is too old", "install OpenSSH 8.5 or newer"),
    ("timed out|[Nn]o route|unreachable|refused|reset|closed by", "the hub does not answer to ssh", _VPN),
)
# X509_V_ERR_CERT_NOT_YET_VALID and _HAS_EXPIRED of OpenSSL.
_CLOCK_ERRORS = frozenset({9, 10})
_REPEATED = frozenset({0, 429, 500, 502, 503, 504})


class BpError(Exception):
    """A problem in words, its fix, the exit code, and the status of the hub's answer if it refused a request."""

    def __init__(self, what: str, fix: str = "", code: int = MISSING, status: int = 0) -> None:
        super().__init__(what)
        self.fix, self.code, self.status = fix, code, status


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


def load_settings(program: Path) -> Settings:
    """Return what `bp.json` says, which is beside bp. Raises BpError."""
    path = program.resolve().with_name("bp.json")
    try:
        return Settings(**json.loads(path.read_text(encoding="utf-8")), folder=path.parent)
    except FileNotFoundError:
        raise BpError(f"{path} does not exist", "run bp in the folder of the archive, or by a link to it") from None
    except (OSError, ValueError, TypeError):
        raise BpError(f"cannot read {path}", "unpack the archive again") from None


class Hub:
    """The hub of an archive. Methods raise BpError."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.now = time.time()
        """The hub's clock at its last answer."""
        self._lock, self._token = Lock(), ""
        caches = os.environ.get("XDG_CACHE_HOME", "")
        folder = Path(caches) if caches.startswith("/") else Path("~/.cache").expanduser()
        self._cache = folder / "bedplate" / settings.fleet / "token"
        self._trust = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self._trust.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            self._trust.load_verify_locations(cadata=settings.certificate)
        except (OSError, ValueError, TypeError):
            raise BpError("bp.json has no certificate of the hub", ARCHIVE) from None

    def token(self, refused: str = "") -> str:
        """Return the token of the cache; a new one if it is missing, old, or refused by the hub."""
        with self._lock:
            for token in (_read_token(self._cache), self._token):
                if token not in {"", refused}:
                    return token
            return self.new_token()

    def new_token(self) -> str:
        """Return a token by ssh, and keep it."""
        self._token = self._ask_token()
        # Without a cache each command asks anew.
        with suppress(OSError):
            self._cache.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor, name = tempfile.mkstemp(dir=self._cache.parent)
            with os.fdopen(descriptor, "w") as file:
                file.write(self._token)
            Path(name).replace(self._cache)
        return self._token

    def _ask_token(self) -> str:
        """Ask by ssh, which may ask the person for the passphrase of a key."""
        folder = self.settings.folder
        keys = str(folder / "known_hosts").replace("%", "%%")
        words = ("-F", str(folder / "bp.config"), "-o", f'UserKnownHostsFile="{keys}"', *SSH_OPTIONS.split())
        command = ("ssh", *words, self.settings.node, "bp-token")
        try:
            done = subprocess.run(  # noqa: S603  the hub of the archive
                command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_SSH_TIMEOUT, check=False
            )
        except OSError as error:
            raise BpError(f"cannot run ssh: {error.strerror}", "install OpenSSH 8.5 or newer") from None
        except subprocess.TimeoutExpired:
            raise BpError(f"no token from ssh within {_SSH_TIMEOUT} s", _VPN) from None
        token, errors = (output.decode(errors="replace").strip() for output in (done.stdout, done.stderr))
        if done.returncode == 0 and _TOKEN.fullmatch(token):
            return token
        for pattern, what, fix in _SSH_ERRORS:
            if re.search(pattern, errors):
                raise BpError(what, fix)
        reason = errors.splitlines()[-1] if errors else "no token in its answer"
        raise BpError(f"the hub gives no token: {reason}", "ask your operator")

    def reach(self) -> socket.socket:
        """Return a connection to the hub; ConnectionError if its machine answers, and nginx does not."""
        try:
            return socket.create_connection((self.settings.address, self.settings.port), _CONNECT_TIMEOUT)
        except ConnectionError:
            raise
        except OSError:
            raise BpError(f"the hub does not answer at {self.settings.address}", _VPN) from None

    def connect(self, timeout: float = _PATIENCE) -> ssl.SSLSocket:
        """Return a connection to the hub with the certificate of the archive; OSError if the hub ends it."""
        try:
            secured = self._trust.wrap_socket(self.reach(), server_hostname=self.settings.host)
        except ssl.SSLCertVerificationError as error:
            if error.verify_code in _CLOCK_ERRORS:
                raise BpError("the hub's certificate is not valid at this laptop's time", "set its clock") from None
            what = f"another certificate than that of the archive answers at {self.settings.address}"
            raise BpError(what, f"{ARCHIVE}, and tell your operator why") from None
        secured.settimeout(timeout)
        return secured

    def call(self, path: str, **values: object) -> Any:  # noqa: ANN401  a document of any kind
        """Return the JSON of an answer; values are sent as JSON. The request is repeated while the hub restarts."""
        end, pause, token, status = time.monotonic() + _PATIENCE, 0.2, "", 0
        while True:
            # A new key of the hub ends tokens early.
            is_refused = status == http.client.UNAUTHORIZED
            token = self.token(refused=token if is_refused else "")
            try:
                status, answer = self._request(path, values, token, end)
            except (OSError, http.client.HTTPException) as error:
                status, answer = 0, (str(error) or type(error).__name__).encode()
            is_worth = status in _REPEATED or (status == http.client.UNAUTHORIZED and not is_refused)
            if not is_worth or time.monotonic() + pause > end:
                break
            time.sleep(pause)
            pause *= 2
        try:
            document = json.loads(answer, parse_constant=str)
        except (ValueError, RecursionError):
            document = None
        if status in _REPEATED or document is None:
            reason = f"status {status}" if status else answer.decode(errors="replace")[:200]
            raise BpError(f"the hub does not serve requests: {reason}", "try again, or ask your operator")
        if status != http.client.OK:
            reason = str(document.get("message") if isinstance(document, dict) else "")[:500]
            raise BpError(f"the hub refuses: {reason} ({status})", "`bp doctor` looks for the cause", status=status)
        return document

    def _request(self, path: str, values: Mapping[str, object], token: str, end: float) -> tuple[int, bytes]:
        """Return status and body of one answer; OSError or HTTPException without one."""
        connection = http.client.HTTPConnection(self.settings.host)
        connection.sock = secured = self.connect()
        # The limit of a socket is for each read: a slow answer could take any time.
        timer = Timer(max(end - time.monotonic(), 1), _shut_down, (secured,))
        timer.start()
        try:
            headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json", "Connection": "close"}
            connection.request("POST" if values else "GET", path, json.dumps(values) if values else None, headers)
            response = connection.getresponse()
            with suppress(TypeError, ValueError):
                self.now = parsedate_to_datetime(response.getheader("Date", "")).timestamp()
            return response.status, response.read(_LARGEST)
        finally:
            timer.cancel()
            secured.close()


def _shut_down(connection: socket.socket) -> None:
    # That of SSLSocket would take the TLS session from the thread that reads.
    with suppress(OSError):
        socket.socket.shutdown(connection, socket.SHUT_RDWR)


def _read_token(path: Path) -> str:
    """Return the token of a file of this account that nobody else reads; empty without one, or if it is too old."""
    with suppress(OSError, ValueError):
        facts = path.stat()
        is_private = facts.st_uid == os.getuid() and not facts.st_mode & 0o077
        if is_private and 0 <= time.time() - facts.st_mtime < _TOKEN_LIFE:
            token = path.read_text(encoding="ascii")
            return token if _TOKEN.fullmatch(token) else ""
    return ""
