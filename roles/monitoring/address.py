"""The address that a node has among the fleet's machines, where its plan does not know it beforehand."""

from collections.abc import Iterable
from ipaddress import IPv4Address

from pyinfra.api.facts import FactBase

NOBODY = IPv4Address("127.0.0.1")


class PrivateAddress(FactBase[IPv4Address]):
    """The address from which the node reaches others; loopback where it reaches nobody, never every address."""

    @staticmethod
    def default() -> IPv4Address:
        """Return loopback."""
        return NOBODY

    def command(self) -> str:
        """Ask for the way to an address of TEST-NET-1 (RFC 5737), which is nobody's: no packet is sent."""
        return "ip -4 -oneline route get 192.0.2.1 2>/dev/null || true"

    def process(self, output: Iterable[str]) -> IPv4Address:
        """Take the word after `src`."""
        words = " ".join(output).split()
        return IPv4Address(words[words.index("src") + 1]) if "src" in words else NOBODY
