"""Paths on a gateway, the config bundle that an operator sends, and the errors of the agent."""

import fcntl
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from ..program import ProgramError


class RejectedError(ProgramError):
    """The input was rejected; nothing was changed."""

    status: ClassVar[int] = 2


class IncompleteError(ProgramError):
    """The input is active, but a daemon did not answer: the next call tries again."""

    status: ClassVar[int] = 6


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder: one agent changes it at a time."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


IPSEC = "/etc/bedplate/ipsec/"
UNITS = "/etc/systemd/system/"
UNIT_PREFIX = "bedplate-ipsec-"
CHARON_UNIT, DIAL_UNIT = f"{UNIT_PREFIX}tunnels.service", f"{UNIT_PREFIX}tunnels-dial.service"
GUARD_RULES = "/etc/bedplate/guard/guard.nft"
WATCH_SCRIPT = "/usr/local/lib/bedplate/ipsec-watch"
LAST_ROUTES = "/etc/bedplate/guard/last-routes"
SYSCTL_CONF = "/etc/sysctl.d/60-bedplate-gateway.conf"
FRR_CONF = "/etc/frr/frr.conf"
CHARON = f"{IPSEC}tunnels/"
STRONGSWAN_CONF, SWANCTL_CONF, TUNNEL_TABLE = f"{CHARON}strongswan.conf", f"{CHARON}swanctl.conf", f"{CHARON}table"
_WORD = r"[A-Za-z0-9][A-Za-z0-9_.-]*"
# The sender is root here anyway; the pattern stops a bundle that was built wrong.
_ALLOWED_PATHS = re.compile(
    "|".join(
        (
            *map(re.escape, (GUARD_RULES, LAST_ROUTES, SYSCTL_CONF, FRR_CONF)),
            rf"{IPSEC}{_WORD}(/{_WORD}){{1,2}}",
            rf"{UNITS}{UNIT_PREFIX}{_WORD}\.(service|timer)",
            r"/usr/local/lib/bedplate/ipsec-(devices|look|watch)",
        )
    ),
    re.ASCII,
)
_ALLOWED_MODES = frozenset({0o600, 0o640, 0o644, 0o755})


@dataclass(frozen=True)
class File:
    """A file of a config bundle. The text may hold a key and is not part of the repr."""

    path: str
    text: str = field(repr=False)
    mode: int

    @property
    def is_allowed(self) -> bool:
        """Whether bedplate sends files to this path with this mode."""
        return _ALLOWED_PATHS.fullmatch(self.path) is not None and self.mode in _ALLOWED_MODES


@dataclass(frozen=True)
class ConfigBundle:
    """All files of a gateway's tunnels, in the order in which they are written there."""

    files: tuple[File, ...]

    @property
    def paths(self) -> frozenset[str]:
        """The paths of all files."""
        return frozenset(file.path for file in self.files)

    @property
    def has_tunnels(self) -> bool:
        """Whether the gateway has tunnels."""
        return TUNNEL_TABLE in self.paths

    @property
    def json_text(self) -> str:
        """The bundle in the format for gateways; it holds keys."""
        return json.dumps({"files": [{"path": file.path, "text": file.text, "mode": file.mode} for file in self.files]})

    def text(self, path: str) -> str:
        """Return the text of a file, or an empty text if the bundle does not have it."""
        return next((file.text for file in self.files if file.path == path), "")


def parse_config_bundle(text: str) -> ConfigBundle | None:
    """Return the config bundle of a JSON text, or None if it is invalid.

    The reason is not reported, because the text may hold keys.
    """
    try:
        items = json.loads(text)["files"]
        files = tuple(File(str(item["path"]), str(item["text"]), int(item["mode"])) for item in items)
    except (RecursionError, ValueError, TypeError, KeyError):
        return None
    return ConfigBundle(files) if files and all(file.is_allowed for file in files) else None


TRANSPORTS = ("udp", "tcp")


@dataclass(frozen=True)
class GatewayPaths:
    """Folders of a gateway and the user of its OpenVPN daemons. Only tests change the defaults.

    `state` holds the agent's own state. Files of tunnels have absolute paths below `root`.
    """

    settings: Path = Path("/etc/bedplate/laptops")
    sockets: Path = Path("/run/bedplate-laptops")
    owner: str = "openvpn"
    state: Path = Path("/var/lib/bedplate-vpn")
    root: Path = Path("/")

    @property
    def crl(self) -> Path:
        """The revocation list."""
        return self.settings / "crl.pem"

    @property
    def certificate(self) -> Path:
        """The gateway's own certificate."""
        return self.settings / "server.crt"

    @property
    def authority(self) -> Path:
        """The certificate of the authority that signs laptops and the revocation list."""
        return self.settings / "ca.crt"

    @property
    def version(self) -> Path:
        """The version of the active access list."""
        return self.settings / "book.version"

    @property
    def last_seen(self) -> Path:
        """When each laptop was last connected."""
        return self.state / "seen.json"

    @property
    def starts(self) -> Path:
        """When, and from where, laptops have started short sessions."""
        return self.state / "starts.json"

    @property
    def pending_actions(self) -> Path:
        """Actions that OpenVPN daemons have not done yet; absent if there are none."""
        return self.state / "owed.json"

    @property
    def pending_files(self) -> Path:
        """Files of tunnels that were written and not yet loaded; absent if all are loaded."""
        return self.state / "unfinished.json"

    @property
    def tunnel_table(self) -> Path:
        """The list of charon's tunnels, one a line."""
        return self.at(TUNNEL_TABLE)

    @property
    def frr_conf(self) -> Path:
        """FRR's configuration."""
        return self.at(FRR_CONF)

    def at(self, path: str) -> Path:
        """Return an absolute path of the gateway below `root`."""
        return self.root / path.lstrip("/")

    def charon_files(self, pattern: str) -> tuple[Path, ...]:
        """Return the files in charon's folder that match a pattern."""
        return tuple(sorted(self.at(CHARON).glob(pattern)))

    def addresses(self, transport: str) -> Path:
        """Return the folder with one file for each laptop that may connect."""
        return self.settings / f"{transport}.laptops"

    def socket(self, transport: str) -> Path:
        """Return the management socket of a transport's daemon."""
        return self.sockets / transport / "management"
