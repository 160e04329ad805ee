"""Two gateways of the product with the internet between them, and a machine behind each.

    desk -- cellar == internet == attic -- rack

`cellar` stands where a caller stands: it dials. `attic` answers. Each text that they run is the product's own.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from ipaddress import IPv4Address, IPv4Network

from tests.support.lab_gateway import Amend, LabGateway, as_rendered
from tests.support.netlab import Lab, LabHost
from tests.support.netlab_program import until
from vpn.sites.pair import Peer, Proofs, joined
from vpn.sites.proof import Proof, SharedKey
from vpn.sites.rendered import RenderedFile

CELLAR = Peer(
    name="cellar",
    identity="cellar.gateways.lab.internal",
    public=IPv4Address("198.51.100.2"),
    address=IPv4Address("192.168.40.1"),
    blocks=(IPv4Network("192.168.40.0/24"), IPv4Network("10.121.4.0/24")),
    calls=True,
)
ATTIC = Peer(
    name="attic",
    identity="attic.gateways.lab.internal",
    public=IPv4Address("203.0.113.2"),
    address=IPv4Address("10.64.0.1"),
    blocks=(IPv4Network("10.64.0.0/24"),),
)
DESK, RACK = "192.168.40.10", "10.64.0.10"


@dataclass(frozen=True)
class Pair:
    """The laboratory: two gateways, the internet, and a machine behind each gateway."""

    lab: Lab
    cellar: LabGateway
    attic: LabGateway
    internet: LabHost
    desk: LabHost
    rack: LabHost

    @property
    def gateways(self) -> tuple[LabGateway, LabGateway]:
        """Both gateways, who waits first."""
        return self.attic, self.cellar

    def start(self) -> None:
        """Lay, guard and start both, who waits first."""
        for gateway in self.gateways:
            gateway.lay()
            gateway.guard()
        for gateway in self.gateways:
            gateway.start()

    def wait(self, seconds: float = 30) -> float:
        """Wait until the rack answers the desk, and return the seconds it took."""
        return until(lambda: self.desk.pings(RACK, 1), seconds, f"nothing passes; {self.told}")

    @property
    def told(self) -> str:
        """The last lines of both logs."""
        return "\n".join(line for one in self.gateways for line in one.log.splitlines()[-12:])


def one_key(secret: bytes = b"one key for both") -> Proofs:
    """Return the proof of gateways that all hold one key."""

    def proof(near: Peer, far: Peer) -> Proof:
        return SharedKey(secret)

    return proof


@contextmanager
def pair(
    proofs: Proofs, amend: Amend = as_rendered, caller: Amend = as_rendered, *, in_kernel: bool = False
) -> Iterator[Pair]:
    """Give the laboratory, wired, with nothing started yet; texts are amended for both, or for who dials alone."""
    with Lab("pair") as lab:
        cellar, attic, internet = lab.host("cellar"), lab.host("attic"), lab.host("internet")
        desk, rack = lab.host("desk"), lab.host("rack")
        _join_internet(lab, internet, cellar, "c0", CELLAR)
        _join_internet(lab, internet, attic, "a0", ATTIC)
        internet.forward()
        _stand_behind(lab, desk, cellar, CELLAR, DESK)
        _stand_behind(lab, rack, attic, ATTIC, RACK)
        yield Pair(
            lab,
            LabGateway(
                cellar,
                joined(CELLAR, (ATTIC,), proofs),
                lambda file: caller(_with(file, amend(file))),
                in_kernel=in_kernel,
            ),
            LabGateway(attic, joined(ATTIC, (CELLAR,), proofs), amend, in_kernel=in_kernel),
            internet,
            desk,
            rack,
        )


def _with(file: RenderedFile, text: str) -> RenderedFile:
    return replace(file, text=text)


def _join_internet(lab: Lab, internet: LabHost, gateway: LabHost, device: str, peer: Peer) -> None:
    """Wire a gateway to the internet, which has the address before its own."""
    lab.wire((internet, device, f"{peer.public - 1}/24"), (gateway, "wan0", f"{peer.public}/24"))
    gateway.route("default", peer.public - 1)


def _stand_behind(lab: Lab, machine: LabHost, gateway: LabHost, peer: Peer, address: str) -> None:
    """Wire a machine to a gateway's LAN."""
    lab.wire((gateway, "lan0", f"{peer.address}/24"), (machine, "eth0", f"{address}/24"))
    machine.route("default", str(peer.address))
