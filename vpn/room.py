"""Whether the gateways' pools have room for one more laptop; never says which address one gets."""

from collections.abc import Collection
from datetime import datetime
from ipaddress import IPv4Network

from bedplate.errors import InputError
from bedplate.spec.pool import room
from vpn.roll import Roll

WIDER = 'revoke what is not used, or give the gateways a wider pool (docs/vpn.md, "When a pool is full")'


def check_room(roll: Roll, name: str, pools: Collection[IPv4Network], now: datetime) -> None:
    """Raise InputError where none of the pools has room for a laptop of that name; of no pools nothing is known."""
    if not pools:
        return
    widest = max(pools, key=room)
    if roll.slots([name], now)[name] >= room(widest):
        told = f"no gateway's pool has room for {name}: the widest, {widest}, is for {room(widest)}"
        raise InputError(told, where="vpn.laptops.pool", fix=WIDER)
