"""What came of carrying tunnels to gateways, a gateway a line; never a key."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from bedplate.report.columns import counted

if TYPE_CHECKING:
    from vpn.sites.carry import CarriedTunnels, Laid


def made_key_lines(made: Iterable[frozenset[str]]) -> Iterator[str]:
    """Yield a row a key that was made for two gateways."""
    yield from sorted(f"+ a key between {' and '.join(sorted(pair))}" for pair in made)


def carried_tunnel_lines(carried: "CarriedTunnels") -> Iterator[str]:
    """Yield a row a gateway that has its tunnels, and what was changed there."""
    for name, laid in sorted(carried.laid.items()):
        yield f"{name}: {counted(laid.tunnels, 'tunnel')}, {_done(laid)}"
    if any(laid.is_news for laid in carried.laid.values()):
        yield "next: `bedplate vpn status` says whether they carry"


def _done(laid: "Laid") -> str:
    counts = (
        (laid.written, "file", "written"),
        (laid.removed, "file", "taken away"),
        (laid.started, "unit", "started"),
    )
    done = [f"{counted(len(each), noun)} {verb}" for each, noun, verb in counts if each]
    return ", ".join(done) or "nothing to change"
