"""The pools that fleet.lock holds, read without the rest: for a command that is to answer at once.

The lock is not judged here: of one that is damaged, or lacks a gateway's pool, nothing is known.
"""

import json
from collections.abc import Iterable
from ipaddress import IPv4Network
from pathlib import Path

from bedplate.load.refusal import Unreadable
from bedplate.load.source import read_source


def read_pools(lock: Path, places: Iterable[str]) -> tuple[IPv4Network, ...]:
    """Return the pool of each of these places, or none where one of them is not known."""
    try:
        blocks = json.loads(read_source(lock))["blocks"]
        return tuple(IPv4Network(str(blocks[f"pool/{place}"])) for place in places)
    except (Unreadable, ValueError, LookupError, TypeError, RecursionError):
        return ()
