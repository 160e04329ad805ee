"""What a gateway's keeper answers to whoever asks how it is, as values. Imports nothing of bedplate but errors."""

import json

from bedplate.errors import PartError
from vpn.keeper.bgp import Neighbour
from vpn.keeper.owed import Owed
from vpn.keeper.sessions import Session
from vpn.keeper.status import Status
from vpn.keeper.tunnels import Tunnel

ASK = "sudo -n bedplate-vpn status"


def parse_status(text: str) -> Status:
    """Return what a keeper printed; PartError for anything else."""
    try:
        told = json.loads(text)
        laptops = {transport: _sessions(each) for transport, each in told["laptops"].items()}
        tunnels = None if told["tunnels"] is None else tuple(Tunnel(**each) for each in told["tunnels"])
        return Status(
            time=told["time"],
            laptops=laptops,
            certificate=told["certificate"],
            crl=told["crl"],
            tunnels=tunnels,
            seen={name: int(moment) for name, moment in told.get("seen", {}).items()},
            number=told.get("number"),
            charons=dict(told.get("charons", {})),
            bgp=_neighbours(told.get("bgp")),
            peer_certificate=told.get("peer_certificate"),
            peer_crl=told.get("peer_crl"),
            owed=_owed(told.get("owed", {})),
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        raise PartError("its keeper says nothing that can be read", fix="apply the role keeper to it") from None


def _sessions(told: list[dict[str, str | int]] | None) -> tuple[Session, ...] | None:
    return None if told is None else tuple(Session(**each) for each in told)  # type: ignore[arg-type]


def _neighbours(told: list[dict[str, str | int | list[str]]] | None) -> tuple[Neighbour, ...] | None:
    return None if told is None else tuple(_neighbour(**each) for each in told)  # type: ignore[arg-type]


def _neighbour(tunnel: str, age: int | None, blocks: list[str]) -> Neighbour:
    return Neighbour(tunnel, age, tuple(blocks))


def _owed(told: dict[str, list[str]]) -> Owed:
    return Owed(frozenset(told.get("cut", ())), frozenset(told.get("anew", ())))
