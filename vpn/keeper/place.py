"""Where a gateway keeps its settings, and where its daemons listen for the keeper."""

from dataclasses import dataclass
from pathlib import Path

from .shipment import BGP, IPSEC

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
