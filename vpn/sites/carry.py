"""What the gateway of each site is sent for its tunnels, to all at once: every file of theirs, keys among them.

Never opens a way to a gateway itself, and asks AWS nothing; what a gateway missed it has after the next time.
"""

import json
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

from bedplate.errors import BedplateError, PartError
from vpn.sites.engine import PROBE, Engine, engine_told
from vpn.sites.files import files_of
from vpn.sites.gateway import Gateway

ASK_ENGINE = "sudo -n sh"
LAY = "sudo -n bedplate-vpn lay"
_DONE = ("written", "removed", "started")
_FIX = "apply the roles keeper and guard to it"

# What a gateway is, once it is known who encrypts there.
Known = Callable[[Engine], Gateway]


class Way(Protocol):
    """A way to one gateway."""

    def run(self, command: str, told: str) -> str:
        """Run a command there with `told` on its standard input, and return what it prints; raises BedplateError."""


@dataclass(frozen=True, slots=True)
class Laid:
    """What came of it at one gateway: who encrypts there, its tunnels, the files and units that were not so before."""

    engine: Engine
    tunnels: int
    written: tuple[str, ...]
    removed: tuple[str, ...]
    started: tuple[str, ...]

    @property
    def is_news(self) -> bool:
        """Whether anything was done."""
        return bool(self.written or self.removed or self.started)


@dataclass(frozen=True, slots=True)
class CarriedTunnels:
    """What came of it, by the name of the gateway; or why nothing did."""

    laid: Mapping[str, Laid]
    failures: Mapping[str, BedplateError]

    def check(self) -> None:
        """Raise PartError, naming every gateway that has not what it was to have, and the way out of the first."""
        if self.failures:
            told = "; ".join(f"{name}: {error.what}" for name, error in self.failures.items())
            first = next(iter(self.failures.values()))
            fix = first.fix or "run `bedplate vpn tunnels` again"
            raise PartError(f"not every gateway has its tunnels: {told}", where=first.where, fix=fix)


def carry_tunnels(
    gateways: Mapping[str, Known], way: Callable[[str], Way], *, may_change_engine: bool = False
) -> CarriedTunnels:
    """Ask every gateway who encrypts there, and send it its files; all at once, by the name of the machine.

    A gateway where somebody else would encrypt than did refuses them unless that may change: all tunnels start anew.
    """

    def send(name: str) -> Laid | BedplateError:
        try:
            return _sent(gateways[name], way(name), may_change_engine=may_change_engine)
        except BedplateError as error:
            return error

    with ThreadPoolExecutor(max(1, len(gateways))) as pool:
        answers = dict(zip(gateways, pool.map(send, gateways), strict=True))
    return CarriedTunnels(
        laid={name: each for name, each in answers.items() if isinstance(each, Laid)},
        failures={name: each for name, each in answers.items() if isinstance(each, BedplateError)},
    )


def shipment_text(gateway: Gateway, *, may_change_engine: bool = False) -> str:
    """Return what a gateway is sent; it holds keys."""
    files = [{"path": str(file.path), "text": file.text, "mode": file.mode} for file in files_of(gateway)]
    return json.dumps({"files": files, "may_change_engine": may_change_engine})


def _sent(known: Known, way: Way, *, may_change_engine: bool) -> Laid:
    try:
        engine = engine_told(way.run(ASK_ENGINE, PROBE))
    except ValueError:
        raise PartError("it does not say who encrypts there", fix=_FIX) from None
    gateway = known(engine)
    told = way.run(LAY, shipment_text(gateway, may_change_engine=may_change_engine))
    try:
        done = {each: tuple(map(str, json.loads(told)[each])) for each in _DONE}
    except (ValueError, KeyError, TypeError):
        raise PartError("it answered something else than was asked", fix=_FIX) from None
    return Laid(engine, len(gateway.tunnels), **done)
