"""What a gateway has of tunnels whose far ends its operator could not ask for, put into the files that were sent.

Reads the connections that lie here, as bedplate renders them; never tells a key.
"""

import re
from dataclasses import dataclass, field, replace
from pathlib import Path

from .shipment import IPSEC, File, Kept, Shipment
from .trouble import Refusal


@dataclass(frozen=True)
class _Far:
    """The far end of a tunnel: where it is dialled, and the key, as they are written here."""

    address: str
    key: str = field(repr=False)


def filled(root: Path, shipment: Shipment) -> Shipment:
    """Return a shipment with what lies here in the place of its words for it; Refusal where a tunnel is not here."""
    if not shipment.kept:
        return shipment
    folder = root / IPSEC.lstrip("/")
    lying = "".join(file.read_text(encoding="utf-8") for file in sorted(folder.glob("*/swanctl.conf")))
    ends = [(each, _far(lying, each.tunnel)) for each in shipment.kept]
    return replace(shipment, files=tuple(_with_ends(file, ends) for file in shipment.files), kept=())


def _far(lying: str, tunnel: str) -> _Far:
    name = re.escape(tunnel)
    address = re.search(rf"^  {name} {{\n.*?^    remote_addrs = (\S+)$", lying, re.MULTILINE | re.DOTALL)
    key = re.search(rf"^  ike-{name} {{\n[^}}]*?^    secret = (0x[0-9a-f]+)$", lying, re.MULTILINE)
    if not address or not key:
        raise Refusal(f"there is no tunnel {tunnel} with a key here that could stay: nothing was changed")
    return _Far(address[1], key[1])


def _with_ends(file: File, ends: list[tuple[Kept, _Far]]) -> File:
    text = file.text
    for words, far in ends:
        text = re.sub(rf"(?<![0-9.]){re.escape(words.address)}(?![0-9.])", far.address, text)
        text = text.replace(words.key, far.key)
    return replace(file, text=text)
