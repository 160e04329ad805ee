"""Where a gateway keeps its settings, and where its daemons listen for the keeper."""

import json
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

_MODE = 0o644


def fill(path: Path, text: str) -> None:
    """Write a text to a path, and return once it would outlast an end of the power."""
    path.write_text(text)
    path.chmod(_MODE)
    with path.open() as stream:
        os.fsync(stream.fileno())


def put(path: Path, text: str) -> None:
    """Put a text at a path whole: who reads it finds the one before, or this."""
    fresh = path.with_name(f".{path.name}.new")
    fill(fresh, text)
    fresh.replace(path)


class Trouble(Exception):
    """Something that whoever asked can mend."""

    status: ClassVar[int] = 1


class Refusal(Trouble):
    """What was sent is not taken; nothing was changed."""

    status: ClassVar[int] = 2


class Unfinished(Trouble):
    """It was taken, and a daemon did not answer: ask again."""

    status: ClassVar[int] = 6


IPSEC = "/etc/bedplate/ipsec/"
UNITS = "/etc/systemd/system/"
UNIT_PREFIX = "bedplate-ipsec-"
SERVICE, DIAL = f"{UNIT_PREFIX}tunnels.service", f"{UNIT_PREFIX}tunnels-dial.service"
GUARD = "/etc/bedplate/guard/guard.nft"
WATCH = "/usr/local/lib/bedplate/ipsec-watch"
LAST_ROUTES = "/etc/bedplate/guard/last-routes"
KERNEL = "/etc/sysctl.d/60-bedplate-gateway.conf"
BGP = "/etc/frr/frr.conf"
CHARON = f"{IPSEC}tunnels/"
SETTINGS, CONNECTIONS, TABLE = f"{CHARON}strongswan.conf", f"{CHARON}swanctl.conf", f"{CHARON}table"
_WORD = r"[A-Za-z0-9][A-Za-z0-9_.-]*"
# Whoever sends may do anything here already; what they send by mistake is still not to lie where it does not belong.
_OURS = re.compile(
    "|".join(
        (
            *map(re.escape, (GUARD, LAST_ROUTES, KERNEL, BGP)),
            rf"{IPSEC}{_WORD}(/{_WORD}){{1,2}}",
            rf"{UNITS}{UNIT_PREFIX}{_WORD}\.(service|timer)",
            r"/usr/local/lib/bedplate/ipsec-(devices|look|watch)",
        )
    ),
    re.ASCII,
)
_MODES = frozenset({0o600, 0o640, 0o644, 0o755})


@dataclass(frozen=True)
class File:
    """A file of root's: where, what, for whom. Its text may be a key, and is not shown."""

    path: str
    text: str = field(repr=False)
    mode: int


@dataclass(frozen=True)
class Shipment:
    """Every file of a gateway, in the order in which they are to lie there."""

    files: tuple[File, ...]

    @property
    def paths(self) -> frozenset[str]:
        """Where they lie."""
        return frozenset(file.path for file in self.files)

    @property
    def has_tunnels(self) -> bool:
        """Whether they are for a gateway with tunnels."""
        return TABLE in self.paths

    def text(self, path: str) -> str:
        """Return the text of a file, empty where it was not sent."""
        return next((file.text for file in self.files if file.path == path), "")


def parse_shipment(text: str) -> Shipment | None:
    """Return what a text holds; None for anything else, of which not a word is told, for it may hold keys."""
    try:
        told = json.loads(text)
        files = tuple(File(str(one["path"]), str(one["text"]), int(one["mode"])) for one in told["files"])
    except (ValueError, TypeError, KeyError):
        return None
    return Shipment(files) if files and all(map(_is_ours, files)) else None


def _is_ours(file: File) -> bool:
    return _OURS.fullmatch(file.path) is not None and file.mode in _MODES


TRANSPORTS = ("udp", "tcp")


@dataclass(frozen=True)
class Place:
    """The folders of a gateway, and the account of its daemons; the standard ones but in tests.

    Files of tunnels lie all over the machine, and are told by their whole paths, from `root`.
    """

    settings: Path = Path("/etc/bedplate/laptops")
    sockets: Path = Path("/run/bedplate-laptops")
    owner: str = "openvpn"
    memory: Path = Path("/var/lib/bedplate-vpn")
    root: Path = Path("/")

    @property
    def crl(self) -> Path:
        """The list of revoked certificates."""
        return self.settings / "crl.pem"

    @property
    def version(self) -> Path:
        """The version of the book in force."""
        return self.settings / "book.version"

    @property
    def seen(self) -> Path:
        """When each laptop was last connected."""
        return self.memory / "seen.json"

    @property
    def unfinished(self) -> Path:
        """What was written for tunnels and is not in force yet; not there while all is."""
        return self.memory / "unfinished.json"

    @property
    def owed(self) -> Path:
        """What the daemons of laptops are still owed; not there while it is nothing."""
        return self.memory / "owed.json"

    @property
    def tunnels(self) -> Path:
        """A folder for each charon."""
        return self.root / IPSEC.lstrip("/")

    @property
    def bgp(self) -> Path:
        """FRR's settings."""
        return self.root / BGP.lstrip("/")

    @property
    def certificate(self) -> Path:
        """The gateway's own certificate."""
        return self.settings / "server.crt"

    @property
    def trusted(self) -> Path:
        """The authority that signs laptops and the list."""
        return self.settings / "ca.crt"

    def papers(self, pattern: str) -> tuple[Path, ...]:
        """Return the files of that pattern in the folders of the daemons of tunnels."""
        return tuple(sorted((self.root / "etc/bedplate/ipsec").glob(f"*/{pattern}")))

    def addresses(self, transport: str) -> Path:
        """Return the folder of the files that let laptops in, one each."""
        return self.settings / f"{transport}.laptops"

    def socket(self, transport: str) -> Path:
        """Return the socket of the daemon of a transport."""
        return self.sockets / transport / "management"
