"""How a gateway is: its daemons, who is connected, when its certificates end, and what its tunnels carry."""

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field

from .certificate import certificate_end, crl_end
from .place import TRANSPORTS, Place
from .seen import Seen, seen
from .sessions import Session, sessions
from .trouble import Refusal, Trouble
from .tunnels import Tunnel, tunnels


@dataclass(frozen=True)
class Status:
    """What a gateway says of itself; times are Unix time by its own clock, which shows `time`.

    `laptops` holds the sessions of each daemon that is to run here, None where it is down. `tunnels` is None where
    no daemon of tunnels answers, `certificate` and `crl` where there is none that can be read. `seen` holds when each
    laptop was last connected here.
    """

    time: int
    laptops: dict[str, tuple[Session, ...] | None]
    certificate: int | None
    crl: int | None
    tunnels: tuple[Tunnel, ...] | None
    seen: Seen = field(default_factory=dict)

    def document(self) -> dict[str, object]:
        """Return it as JSON's own types."""
        return asdict(self)


def status(place: Place) -> Status:
    """Return how this gateway is."""
    served = [each for each in TRANSPORTS if (place.settings / f"{each}.conf").exists()]
    laptops = {each: _sessions(place, each) for each in served}
    now = int(time.time())
    return Status(
        time=now,
        laptops=laptops,
        certificate=_read(lambda: certificate_end(place.certificate)) if served else None,
        crl=_read(lambda: crl_end(place.crl)) if served else None,
        tunnels=tunnels(),
        seen=seen(place.seen, (each for told in laptops.values() for each in told or ()), now),
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
