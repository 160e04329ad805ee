"""How a gateway is: its daemons, who is connected, when its certificates end, and what its tunnels carry."""

import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path

from .answering import answers
from .bgp import Neighbour, neighbours
from .certificate import certificate_end, crl_end, crl_number
from .owed import NOTHING, Owed, read_owed
from .place import TRANSPORTS, Place
from .seen import Seen, seen
from .sessions import Session, sessions
from .trouble import Refusal, Trouble
from .tunnels import Tunnel


@dataclass(frozen=True)
class Status:
    """What a gateway says of itself; times are Unix time by its own clock, which shows `time`.

    `laptops` holds the sessions of each daemon that is to run here, None where it is down. `tunnels` is None where
    there is no daemon of tunnels, `certificate`, `crl` and `number`, which is the list's, where there is none that can
    be read. `seen` holds when each laptop was last connected here. `charons` tells which daemons of tunnels answer,
    `bgp` whom those that are to speak BGP reach, None where that is not told; `owed` what daemons were not told yet.
    `peer_certificate` and `peer_crl` are when the first of those ends by which gateways know each other at tunnels;
    None where they have keys.
    """

    time: int
    laptops: dict[str, tuple[Session, ...] | None]
    certificate: int | None
    crl: int | None
    tunnels: tuple[Tunnel, ...] | None
    seen: Seen = field(default_factory=dict)
    number: int | None = None
    charons: dict[str, bool] = field(default_factory=dict)
    bgp: tuple[Neighbour, ...] | None = None
    owed: Owed = NOTHING
    peer_certificate: int | None = None
    peer_crl: int | None = None

    def document(self) -> dict[str, object]:
        """Return it as JSON's own types."""
        return {**asdict(self), "owed": self.owed.document()}


def status(place: Place) -> Status:
    """Return how this gateway is."""
    served = [each for each in TRANSPORTS if (place.settings / f"{each}.conf").exists()]
    laptops = {each: _sessions(place, each) for each in served}
    standing = answers(place.tunnels)
    now = int(time.time())
    return Status(
        time=now,
        laptops=laptops,
        certificate=_read(lambda: certificate_end(place.certificate)) if served else None,
        crl=_read(lambda: crl_end(place.crl)) if served else None,
        tunnels=standing.tunnels,
        peer_certificate=_earliest(certificate_end, place.papers("x509/*.crt")),
        peer_crl=_earliest(crl_end, place.papers("x509crl/*.crl")),
        seen=seen(place.seen, (each for told in laptops.values() for each in told or ()), now),
        number=_read(lambda: crl_number(place.crl)) if served else None,
        charons=standing.charons,
        bgp=neighbours(place.bgp),
        owed=read_owed(place.owed),
    )


def _sessions(place: Place, transport: str) -> tuple[Session, ...] | None:
    try:
        return sessions(place.socket(transport))
    except Trouble:
        return None


def _earliest(end: Callable[[Path], int], files: Iterable[Path]) -> int | None:
    """Return when the first of some files ends; one that cannot be read ended long ago."""
    return min((_read(partial(end, file)) or 0 for file in files), default=None)


def _read(moment: Callable[[], int]) -> int | None:
    try:
        return moment()
    except Refusal:
        return None
