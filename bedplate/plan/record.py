"""What fleet.lock remembers: every block that was ever allotted, by its path."""

from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv4Network


@dataclass(frozen=True, slots=True)
class Record:
    """Blocks by path (`region/us-west-2/zone/us-west-2a/edge`), of today's file and of earlier ones."""

    blocks: Mapping[str, IPv4Network]
