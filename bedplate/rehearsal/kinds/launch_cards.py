"""What EC2 refuses of the network interfaces of launch data: each by itself, all together, and on the cards of a type.

Sources, read 2026-11: EC2 user guide, "Network cards" and "Elastic Fabric Adapter"; EC2 API reference,
InstanceNetworkInterfaceSpecification. EC2 tells all of it only when a machine is to start.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from bedplate.rehearsal.kind import Complaint, Props
from bedplate.rehearsal.unknown import is_known

_ADDRESSES = ("ipv4AddressCount", "ipv4Addresses", "ipv6AddressCount", "ipv6Addresses", "privateIpAddress")
_TRUE = ("1", "t", "T", "true", "TRUE", "True")
_FABRIC = ("efa", "efa-only")


def card_complaints(interfaces: object) -> Iterator[Complaint]:
    """Yield what is wrong with a template's interfaces, whatever the type of its machines."""
    listed = interfaces if isinstance(interfaces, list) and is_known(interfaces) else []
    for reason in (*_misplaced(listed), *_misaddressed(listed)):
        yield Complaint("networkInterfaces", reason)


def _misplaced(listed: list[Props]) -> Iterator[str]:
    places = [(each.get("networkCardIndex") or 0, each.get("deviceIndex") or 0) for each in listed]
    if len(set(places)) < len(places):
        yield "each interface has a deviceIndex of its own on its network card"
    if listed and (0, 0) not in places:
        yield "one interface is the primary: deviceIndex 0 on network card 0"
    first = dict(zip(places, listed, strict=True)).get((0, 0), {})
    if first.get("interfaceType") == "efa-only":
        yield "the primary interface cannot be efa-only: it bears the machine's address"


def _misaddressed(listed: list[Props]) -> Iterator[str]:
    if len(listed) > 1 and any(str(each.get("associatePublicIpAddress")) in _TRUE for each in listed):
        yield "associatePublicIpAddress cannot be specified with several network interfaces"
    if any(each.get("interfaceType") == "efa-only" and any(each.get(key) for key in _ADDRESSES) for each in listed):
        yield "an efa-only interface takes no address"


def misfit(facts: Mapping[str, Any], interfaces: list[dict[str, Any]]) -> str:
    """Return why a type, as EC2 describes it, cannot have these interfaces of launch data; nothing where it can."""
    network, name = facts["NetworkInfo"], facts["InstanceType"]
    cards = {card["NetworkCardIndex"]: card for card in network.get("NetworkCards", [])}
    used = Counter(_card(each) for each in interfaces)
    fabric = [each for each in interfaces if each.get("InterfaceType") in _FABRIC]
    most = (network.get("EfaInfo") or {}).get("MaximumEfaInterfaces", 0)
    if strange := sorted(used.keys() - cards.keys()):
        return f"{name} has no network card {strange[0]}"
    for each in interfaces:
        card, place, kind = cards[_card(each)], each.get("DeviceIndex") or 0, each.get("InterfaceType") or "interface"
        room, where = card["MaximumNetworkInterfaces"], f"the network card {_card(each)} of {name}"
        if place >= room or used[_card(each)] > room:
            return f"{where} takes {room} interfaces, with device indexes from 0 to {room - 1}"
        if kind not in card["InterfaceTypes"]:
            return f"{where} takes no interface of the type {kind}"
    return f"{name} has at most {most} EFA interfaces, not {len(fabric)}" if len(fabric) > most else ""


def _card(interface: Mapping[str, Any]) -> int:
    return int(interface.get("NetworkCardIndex") or 0)
