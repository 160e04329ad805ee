"""What the gateway of each site is sent for its tunnels, to all at once: every file of theirs, keys among them.

Never opens a way to a gateway itself, and asks AWS nothing; what a gateway missed it has after the next time.
"""

import json
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

from bedplate.errors import BedplateError, PartError
from vpn.sites.files import files_of
from vpn.sites.gateway import Gateway

LAY = "sudo -n bedplate-vpn lay"
_DONE = ("written", "removed", "started")
_FIX = "apply the roles keeper and guard to it"


class Way(Protocol):
    """A way to one gateway."""

    def run(self, command: str, told: str) -> str:
        """Run a command there with `told` on its standard input, and return what it prints; raises BedplateError."""


@dataclass(frozen=True, slots=True)
class Laid:
    """What was changed at one gateway: its number of tunnels, the files and units that were changed."""

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


def carry_tunnels(gateways: Mapping[str, Gateway], way: Callable[[str], Way]) -> CarriedTunnels:
    """Send every gateway its files; all at once, by the name of the machine."""

    def send(name: str) -> Laid | BedplateError:
        try:
            return _sent(gateways[name], way(name))
        except BedplateError as error:
            return error

    with ThreadPoolExecutor(max(1, len(gateways))) as pool:
        answers = dict(zip(gateways, pool.map(send, gateways), strict=True))
    return CarriedTunnels(
        laid={name: each for name, each in answers.items() if isinstance(each, Laid)},
        failures={name: each for name, each in answers.items() if isinstance(each, BedplateError)},
    )


def shipment_text(gateway: Gateway) -> str:
    """Return what a gateway is sent; it holds keys."""
    files = [{"path": str(file.path), "text": file.text, "mode": file.mode} for file in files_of(gateway)]
    return json.dumps({"files": files})


def _sent(gateway: Gateway, way: Way) -> Laid:
    told = way.run(LAY, shipment_text(gateway))
    try:
        done = {each: tuple(map(str, json.loads(told)[each])) for each in _DONE}
    except (ValueError, KeyError, TypeError):
        raise PartError("it answered something else than was asked", fix=_FIX) from None
    return Laid(len(gateway.tunnels), **done)
