"""What a site's gateway is sent for its tunnels: every file, whole, each time. Never writes one."""

import json
import re
from dataclasses import dataclass, field

IPSEC = "/etc/bedplate/ipsec/"
UNITS = "/etc/systemd/system/"
UNIT_PREFIX = "bedplate-ipsec-"
GUARD, HANDOVER = "/etc/bedplate/guard/guard.nft", "/etc/bedplate/guard/handover.nft"
WATCH = "/usr/local/lib/bedplate/ipsec-watch"
LAST_ROUTES = "/etc/bedplate/guard/last-routes"
KERNEL = "/etc/sysctl.d/60-bedplate-gateway.conf"
BGP = "/etc/frr/frr.conf"
# The one charon that serves all tunnels where the kernel encrypts; where it does not, each tunnel has its own.
TOGETHER = "tunnels"
_WORD = r"[A-Za-z0-9][A-Za-z0-9_.-]*"
# Whoever sends may do anything here already; what they send by mistake is still not to lie where it does not belong.
_OURS = re.compile(
    "|".join(
        (
            *map(re.escape, (GUARD, LAST_ROUTES, HANDOVER, KERNEL, BGP)),
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
    """Every file of a gateway, in the order in which they are to lie there.

    `may_change_engine` says that whoever sends it knows that somebody else may encrypt there than did before.
    """

    files: tuple[File, ...]
    may_change_engine: bool = False

    @property
    def paths(self) -> frozenset[str]:
        """Where they lie."""
        return frozenset(file.path for file in self.files)

    @property
    def charons(self) -> tuple[str, ...]:
        """The names of the charons that they are for."""
        return tuple(sorted({charon_of(path) for path in self.paths} - {""}))


def charon_of(path: str) -> str:
    """Return the charon to whose folder a file belongs; nothing for a file of another folder."""
    return path.removeprefix(IPSEC).partition("/")[0] if path.startswith(IPSEC) else ""


def parse_shipment(text: str) -> Shipment | None:
    """Return what a text holds; None for anything else, of which not a word is told, for it may hold keys."""
    try:
        told = json.loads(text)
        files = tuple(File(str(one["path"]), str(one["text"]), int(one["mode"])) for one in told["files"])
    except (ValueError, TypeError, KeyError):
        return None
    may_change = told.get("may_change_engine") is True
    return Shipment(files, may_change) if files and all(map(_is_ours, files)) else None


def _is_ours(file: File) -> bool:
    return _OURS.fullmatch(file.path) is not None and file.mode in _MODES
