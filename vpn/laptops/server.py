"""What OpenVPN is told on a gateway: one configuration a transport, and one file a laptop with the address it gets.

Pure: never reads a key, only names the files that hold them.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from bedplate.errors import InputError
from bedplate.plan.laptops import LaptopGateway, Transport
from vpn.laptops.cipher import CIPHERS
from vpn.laptops.text import filled


@dataclass(frozen=True, slots=True)
class Laptop:
    """A device of a person: `name` is what its certificate says, `slot` gives its address at every gateway."""

    name: str
    slot: int


@dataclass(frozen=True, slots=True)
class Folders:
    """Where a gateway keeps what is written for it, and where its daemons put their sockets."""

    settings: PurePosixPath
    sockets: PurePosixPath

    def addresses(self, transport: Transport) -> PurePosixPath:
        """Return the folder that holds a file a laptop."""
        return self.settings / f"{transport}.laptops"

    def socket(self, transport: Transport) -> PurePosixPath:
        """Return the socket by which a daemon is asked and told."""
        return self.sockets / str(transport) / "management"


STANDARD = Folders(PurePosixPath("/etc/bedplate/laptops"), PurePosixPath("/run/bedplate-laptops"))


def device(transport: Transport) -> str:
    """Return the name of the network device that a transport's laptops are behind."""
    return f"laptops-{transport}"


def server_conf(gateway: LaptopGateway, transport: Transport, folders: Folders = STANDARD) -> str:
    """Return the configuration of a gateway's daemon for one transport.

    Raises InputError where the addresses that answer for the fleet's names are not recorded yet.
    """
    if not gateway.resolvers:
        raise InputError(
            f"fleet.lock does not say who answers the laptops of {gateway.place} for the fleet's names",
            fix="run `bedplate vpn record` once the fleet's stacks are up",
        )
    return filled(
        "server.conf.j2",
        gateway=gateway,
        transport=transport,
        block=gateway.block(transport),
        device=device(transport),
        folders=folders,
        ciphers=CIPHERS,
    )


def address_files(gateway: LaptopGateway, transport: Transport, laptops: Iterable[Laptop]) -> Mapping[str, str]:
    """Return the files that let laptops in, by the name of each; one that the pool has no room for has none."""
    return {each.name: _address_file(gateway, transport, each) for each in laptops if each.slot < gateway.most}


def without_room(gateway: LaptopGateway, laptops: Iterable[Laptop]) -> tuple[str, ...]:
    """Return the names of the laptops that the gateway's pool has no room for."""
    return tuple(each.name for each in laptops if each.slot >= gateway.most)


def _address_file(gateway: LaptopGateway, transport: Transport, laptop: Laptop) -> str:
    return f"ifconfig-push {gateway.address(transport, laptop.slot)} {gateway.block(transport).netmask}\n"
