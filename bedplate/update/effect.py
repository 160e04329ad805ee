"""How much of a live fleet an edit touches, from nothing to all."""

from dataclasses import dataclass
from enum import StrEnum


class Effect(StrEnum):
    """What happens to what lives; each is harder on it than the one before."""

    FREE = "free"
    NEW_NODES = "new nodes only"
    ROLLING = "rolling replace"
    REPLACES = "replaces"
    REMOVES = "removes"
    REFUSED = "refused"

    @property
    def weight(self) -> int:
        """How hard it is on what lives: 0 for nothing at all."""
        return list(Effect).index(self)


class Event(StrEnum):
    """What happened to a key: it has another value, or an entry of a table or list came or went."""

    CHANGED = "changed"
    ADDED = "added"
    REMOVED = "removed"


@dataclass(frozen=True, slots=True)
class Policy:
    """What an event at a key does to a live fleet.

    `key` is dotted, `*` stands for a name or a place in a list; `does` says in a clause what is touched, `way` what
    to do instead where the edit is refused. `rolls` marks what machines start with: where a group is not rolled
    (people's machines, and those of a fabric), only its new nodes have it. `grows` marks what is free where a number
    gets larger, or a block holds the one that was.
    """

    key: str
    event: Event
    effect: Effect
    does: str
    way: str = ""
    rolls: bool = False
    grows: bool = False
