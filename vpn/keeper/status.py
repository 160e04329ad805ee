"""How a gateway is: its daemons, who is connected, when its certificates end, and what its tunnels carry."""

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field

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


def _read(moment: Callable[[], int]) -> int | None:
    try:
        return moment()
    except Refusal:
        return None
