"""The tunnels of strongSwan as it tells of them: each connection it knows, and what its association carried.

Source: strongSwan, src/libcharon/plugins/vici/README.md, the commands list-conns and list-sas.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

_WORD = re.compile(r"[{}\[\]]|[^\s{}\[\]=]+=?|=")
Told = dict[str, "str | Told"]


@dataclass(frozen=True)
class Tunnel:
    """A connection: seconds since its association was made, bytes both ways, and seconds since a packet came in.

    All are None or 0 where it has no association. `charon` names the daemon that has it.
    """

    name: str
    age: int | None
    received: int
    sent: int
    idle: int | None
    charon: str = ""


def carried(known: str, standing: str) -> tuple[Tunnel, ...]:
    """Return the connections of what `--list-conns --raw` and `--list-sas --raw` print."""
    alive = list(_events(standing))
    return tuple(_tunnel(name, [sa for event in alive for each, sa in event if each == name]) for name in _names(known))


def _names(known: str) -> list[str]:
    return [name for event in _events(known) for name, _ in event]


def _tunnel(name: str, associations: list[Told]) -> Tunnel:
    children = [child for sa in associations for child in _tables(sa.get("child-sas"))]
    ages = [int(_text(sa, "established")) for sa in associations if sa.get("state") == "ESTABLISHED"]
    idle = [int(_text(child, "use-in")) for child in children if "use-in" in child]
    return Tunnel(
        name=name,
        age=max(ages, default=None),
        received=sum(int(_text(child, "bytes-in")) for child in children),
        sent=sum(int(_text(child, "bytes-out")) for child in children),
        idle=min(idle, default=None),
    )


def _text(told: Told, key: str) -> str:
    value = told.get(key, "0")
    return value if isinstance(value, str) else "0"


def _tables(told: str | Told | None) -> list[Told]:
    return [each for each in told.values() if isinstance(each, dict)] if isinstance(told, dict) else []


def _events(raw: str) -> Iterator[list[tuple[str, Told]]]:
    for line in raw.splitlines():
        _, event, rest = line.partition(" event ")
        if event:
            told = _parsed(iter(_WORD.findall(rest)[1:]))
            yield [(name, each) for name, each in told.items() if isinstance(each, dict)]


def _parsed(words: Iterator[str]) -> Told:
    """Return a section: `key=value`, `key=[list]` and `key {section}`, up to its closing brace."""
    told: Told = {}
    key = ""
    for word in words:
        if word == "}":
            return told
        if word == "{":
            told[key] = _parsed(words)
        elif word == "[":
            told[key] = " ".join(iter(lambda: next(words), "]"))
        elif word.endswith("="):
            key = word[:-1]
            told[key] = ""
        elif told.get(key) == "":
            told[key] = word
        else:
            key = word
    return told
