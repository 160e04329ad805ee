"""What every gateway of laptops is sent whenever keys change: who is let in, and who is cut off, to all at once.

Never opens a way to a gateway itself; each is sent everything, so that what one missed it has after the next time.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Protocol

from bedplate.errors import BedplateError, PartError
from bedplate.plan.laptops import LaptopGateway, Transport
from vpn.laptops.server import Laptop, address_files, without_room
from vpn.signing import WIDER

TAKE = "sudo -n bedplate-vpn take"


@dataclass(frozen=True, slots=True)
class GatewayKeys:
    """What a gateway proves itself by, each as PEM; `trusted` is who signs laptops, `tls_crypt` all gateways' key."""

    trusted: str
    certificate: str
    key: str = field(repr=False)
    tls_crypt: str = field(repr=False)

    @property
    def files(self) -> Mapping[str, str]:
        """The names under which a gateway keeps them."""
        return {
            "ca.crt": self.trusted,
            "server.crt": self.certificate,
            "server.key": self.key,
            "tls-crypt-v2.key": self.tls_crypt,
        }


class Way(Protocol):
    """A way to one gateway."""

    def run(self, command: str, told: str) -> str:
        """Run a command there with `told` on its standard input, and return what it prints; raises BedplateError."""


NO_KEYS: Mapping[str, GatewayKeys] = MappingProxyType({})
NONE_REVOKED: Mapping[int, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Book:
    """Whom gateways let in from now on: the list of revoked certificates (PEM), and every laptop that stays.

    `version` is the number of lines of the journal: a gateway refuses a book with a lower version than it has.
    `keys` holds what gateways prove themselves by, by place; a gateway of which it says nothing keeps what it has.
    `revoked` holds the serials of certificates that those laptops had before: a session may still be by one of them.
    """

    crl: str
    laptops: tuple[Laptop, ...]
    keys: Mapping[str, GatewayKeys] = field(default_factory=lambda: NO_KEYS)
    revoked: Mapping[int, str] = field(default_factory=lambda: NONE_REVOKED)
    version: int = 0

    def with_keys(self, found: Mapping[str, GatewayKeys | BedplateError]) -> tuple["Book", Mapping[str, BedplateError]]:
        """Return the book with the keys that are fit to be sent, and why the others are not, by place."""
        keys = {place: each for place, each in found.items() if isinstance(each, GatewayKeys)}
        unfit = {place: each for place, each in found.items() if isinstance(each, BedplateError)}
        return replace(self, keys=keys), unfit


@dataclass(frozen=True, slots=True)
class Carried:
    """What came of it, by the place of the gateway: sessions that were cut, by laptop; or why it was not reached.

    `crowded` names the laptops that a gateway's pool has no room for: it let in everybody else.
    """

    cut: Mapping[str, Mapping[str, int]]
    failures: Mapping[str, BedplateError]
    crowded: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def check(self) -> None:
        """Raise PartError, naming every gateway that was not reached, or else every laptop that has no room."""
        if self.failures:
            told = "; ".join(f"{place}: {_said(error)}" for place, error in self.failures.items())
            raise PartError(
                f"not every gateway was told: {told}", fix="run `bedplate vpn sync` again once that is mended"
            )
        if self.crowded:
            told = "; ".join(f"{place} has no room for {', '.join(names)}" for place, names in self.crowded.items())
            raise PartError(f"not every laptop is let in: {told}", where="vpn.laptops.pool", fix=WIDER)


def _said(error: BedplateError) -> str:
    return f"{error.what} ({error.fix})" if error.fix else error.what


def carry(
    gateways: Sequence[LaptopGateway],
    book: Book,
    way: Callable[[LaptopGateway], Way],
    *,
    cut: Iterable[str] = (),
) -> Carried:
    """Send the book to every gateway at once; whoever is not in it, or named by `cut`, loses the live session."""
    ending = tuple(cut)
    texts = {gateway.place: book_text(gateway, book, ending) for gateway in gateways}

    def send(gateway: LaptopGateway) -> Mapping[str, int] | BedplateError:
        try:
            told: Mapping[str, int] = json.loads(way(gateway).run(TAKE, texts[gateway.place]))["cut"]
        except BedplateError as error:
            return error
        except (ValueError, KeyError, TypeError):
            return PartError("it answered something else than was asked", fix="apply the role openvpn to it")
        return told

    with ThreadPoolExecutor(max(1, len(gateways))) as pool:
        answers = dict(zip(texts, pool.map(send, gateways), strict=True))
    return Carried(
        cut={place: each for place, each in answers.items() if not isinstance(each, BedplateError)},
        failures={place: each for place, each in answers.items() if isinstance(each, BedplateError)},
        crowded={each.place: names for each in gateways if (names := without_room(each, book.laptops))},
    )


def book_text(gateway: LaptopGateway, book: Book, cut: Iterable[str] = ()) -> str:
    """Return what one gateway is sent."""
    laptops = {str(transport): address_files(gateway, transport, book.laptops) for transport in Transport}
    revoked = {f"{serial:x}": name for serial, name in book.revoked.items()}
    told = {"crl": book.crl, "laptops": laptops, "cut": sorted(cut), "revoked": revoked, "version": book.version}
    keys = book.keys.get(gateway.place)
    return json.dumps(told | ({"identity": dict(keys.files)} if keys else {}))
