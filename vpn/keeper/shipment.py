"""What a site's gateway is sent for its tunnels: every file, whole, each time. Never writes one."""

import json
import re
from dataclasses import dataclass, field

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
