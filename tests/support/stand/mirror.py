"""Where this machine's apt finds packages, and what it must know to reach them: a test node's root asks the same.

Reads this machine's settings when a root is made; none of them is written down in the project.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from tests.support.stand.command import call

RELEASE = "bookworm"
# A lost download is tried again, and an index that stays lost is an error: by default `apt-get update` only warns.
APT_GET = ("apt-get", "--quiet", "-oAcquire::Retries=5", "-oAPT::Update::Error-Mode=any")
APT_INSTALL = (*APT_GET, "install", "--yes", "--no-install-recommends")
_DEBIAN = "http://deb.debian.org/debian"
_SECURITY = "http://deb.debian.org/debian-security"
# Settings of apt that say how to reach a mirror; what else this machine prefers is its own matter.
_REACHING = re.compile(r"Acquire::(https?|Retries|Check-)")
_ENTRY = re.compile(r"^(?:URIs:|deb)\s+(?:\[.*\]\s+)?(https?://\S+?)/?(?:\s|$)", re.MULTILINE)
_AUTHORITIES = Path("/usr/local/share/ca-certificates")


@dataclass(frozen=True, slots=True)
class Mirror:
    """The two archives of Debian, apt's settings to reach them, and the authorities that this machine trusts."""

    debian: str
    security: str
    settings: str
    proxy: str
    authorities: tuple[Path, ...]

    @property
    def sources(self) -> str:
        """The sources of a node, in the form of sources.list."""
        return "".join(
            f"deb {archive} {suite} main\n"
            for archive, suite in (
                (self.debian, RELEASE),
                (self.debian, f"{RELEASE}-updates"),
                (self.security, f"{RELEASE}-security"),
            )
        )


def mirror_here() -> Mirror:
    """Return what this machine's apt uses; Debian's own archives where it has sources of another distribution."""
    places = Path("/etc/apt")
    files = (places / "sources.list", *sorted(places.glob("sources.list.d/*")))
    found = [uri for file in files if file.is_file() for uri in _ENTRY.findall(file.read_text())]
    settings = "".join(line for line in call("apt-config", "dump").splitlines(keepends=True) if _REACHING.match(line))
    proxy = re.search(r'Acquire::http::Proxy "(.+)"', settings)
    return Mirror(
        debian=next((uri for uri in found if uri.endswith("/debian")), _DEBIAN),
        security=next((uri for uri in found if uri.endswith("/debian-security")), _SECURITY),
        settings=settings,
        proxy=proxy.group(1) if proxy else "",
        authorities=tuple(sorted(_AUTHORITIES.glob("*.crt"))),
    )
