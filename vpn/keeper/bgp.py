"""Whom this gateway speaks BGP with by its own file, whether each answers, and which blocks it tells of.

Source: FRR 8, "show bgp ipv4 unicast summary json" and "show bgp ipv4 unicast json", seen at 8.4.4.
"""

import json
import re
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

_PEERS, _ROUTES = "show bgp ipv4 unicast summary json", "show bgp ipv4 unicast json"
_SECONDS = 5
_NEIGHBOUR = re.compile(r"^ *neighbor (\S+) description (\S+)$", re.MULTILINE)
_JSON = json.JSONDecoder()


@dataclass(frozen=True)
class Neighbour:
    """The far end of a tunnel: seconds since BGP stands with it, None where it does not, and the blocks it tells of.

    They are those that the gateway believes: what its filters drop is not among them.
    """

    tunnel: str
    age: int | None
    blocks: tuple[str, ...]


def neighbours(file: Path, *where: str) -> tuple[Neighbour, ...]:
    """Return every neighbour that FRR's settings in a file name, none where there is no file; `where` is for vtysh."""
    named = _NEIGHBOUR.findall(file.read_text()) if file.exists() else []
    return spoken(named, _asked(*where)) if named else ()


def spoken(named: list[tuple[str, str]], told: str) -> tuple[Neighbour, ...]:
    """Return the neighbours, by address and tunnel, as vtysh tells of them: those it says nothing of are down."""
    found: dict[str, Mapping[str, object]] = {key: each for part in _documents(told) for key, each in part.items()}
    peers, routes = found.get("peers", {}), found.get("routes", {})
    return tuple(Neighbour(tunnel, _age(peers.get(address)), _blocks(routes, address)) for address, tunnel in named)


def _age(peer: object) -> int | None:
    if not isinstance(peer, dict) or peer.get("state") != "Established":
        return None
    return int(peer["peerUptimeMsec"]) // 1000


def _blocks(routes: Mapping[str, object], address: str) -> tuple[str, ...]:
    return tuple(sorted(block for block, ways in routes.items() if address in _tellers(ways)))


def _tellers(ways: object) -> set[object]:
    return {way.get("peerId") for way in ways if isinstance(way, dict)} if isinstance(ways, list) else set()


def _documents(told: str) -> Iterator[dict[str, Mapping[str, object]]]:
    """Yield the tables of every JSON document in a text: vtysh writes one for each question, and a word between."""
    place = told.find("{")
    while place >= 0:
        try:
            document, end = _JSON.raw_decode(told, place)
        except ValueError:
            return
        yield {key: each for key, each in document.items() if isinstance(each, dict)}
        place = told.find("{", end)


def _asked(*where: str) -> str:
    command = ["vtysh", *where, "-c", _PEERS, "-c", _ROUTES]
    try:
        done = subprocess.run(command, capture_output=True, errors="replace", check=False, timeout=_SECONDS)  # noqa: S603
    except (FileNotFoundError, subprocess.TimeoutExpired):
        return ""
    return done.stdout
