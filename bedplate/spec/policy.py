"""Update policies: what an edit of a key does to a deployed fleet.

Every field of the models carries its policies in `json_schema_extra=on_edit(...)`. `bedplate.update` collects
them into one table, and the JSON Schema shows them under `x-update`.
"""

from dataclasses import dataclass
from enum import StrEnum

from pydantic.config import JsonDict

KEYWORD = "x-update"


class Effect(StrEnum):
    """What happens to deployed resources, from no effect to the hardest."""

    FREE = "free"
    NEW_NODES = "new nodes only"
    REPLACES = "replaces"
    REMOVES = "removes"
    REFUSED = "refused"

    @property
    def weight(self) -> int:
        """How hard the effect is: 0 for none."""
        return list(Effect).index(self)


class Event(StrEnum):
    """How a key was edited: a new value, or an entry of a table or list (or an optional value) added or removed."""

    CHANGED = "changed"
    ADDED = "added"
    REMOVED = "removed"


ADDED, REMOVED, CHANGED = Event.ADDED, Event.REMOVED, Event.CHANGED
# For optional values and for entries of tables.
BOTH = (ADDED, REMOVED)
# For lists, and for optional values.
EVERY = tuple(Event)


@dataclass(frozen=True, slots=True)
class Policy:
    """The effect of one event at one key.

    `key` is a dotted path with `*` for a name or a list index; a policy on a field has none yet. `does` names the
    affected resources; `way` says what to do instead of a refused edit. `grows`: the effect
    is free if the number increases or the new block contains the old one.
    """

    event: Event
    effect: Effect
    does: str
    way: str = ""
    grows: bool = False
    key: str = ""

    @property
    def summary(self) -> str:
        """The effect, with its exception for larger values."""
        return f"{self.effect.value}; free where it grows" if self.grows else self.effect.value


@dataclass(frozen=True, slots=True)
class OnEdit:
    """The policies of one field; pydantic calls it to extend the field's JSON Schema."""

    policies: tuple[Policy, ...]

    def __call__(self, schema: JsonDict) -> None:
        """Add the effect of each event to the schema."""
        schema[KEYWORD] = {policy.event.value: f"{policy.summary}: {policy.does}" for policy in self.policies}


def on_edit(*policies: tuple[Policy, ...]) -> OnEdit:
    """Return the policies of a field, one per event: `json_schema_extra=on_edit(free("what it affects"))`."""
    order = list(Event)
    return OnEdit(tuple(sorted((policy for group in policies for policy in group), key=lambda p: order.index(p.event))))


def free(does: str, *events: Event) -> tuple[Policy, ...]:
    """Return policies for edits that touch no running resource; without events, for a changed value."""
    return tuple(Policy(event, Effect.FREE, does) for event in events or (CHANGED,))


def new_nodes(does: str, *events: Event) -> tuple[Policy, ...]:
    """Return policies for edits that only new machines get; without events, for a changed value."""
    return tuple(Policy(event, Effect.NEW_NODES, does) for event in events or (CHANGED,))


def replaces(does: str, *events: Event) -> tuple[Policy, ...]:
    """Return policies for edits that delete a resource and create another."""
    return tuple(Policy(event, Effect.REPLACES, does) for event in events or (CHANGED,))


def removes(does: str, *events: Event) -> tuple[Policy, ...]:
    """Return policies for edits that delete resources; without events, for a removed entry."""
    return tuple(Policy(event, Effect.REMOVES, does) for event in events or (REMOVED,))


def entries(added: str, removed: str) -> tuple[Policy, ...]:
    """Return the policies of a table or list: adding an entry is free, removing one deletes its resources."""
    return (*free(added, ADDED), *removes(removed))


def refused(does: str, way: str, *events: Event) -> tuple[Policy, ...]:
    """Return policies for edits that a deployed fleet does not allow; `way` says what to do instead."""
    return tuple(Policy(event, Effect.REFUSED, does, way) for event in events or (CHANGED,))


def shrinks(does: str, effect: Effect = Effect.REMOVES, way: str = "") -> tuple[Policy, ...]:
    """Return the policy for a value that is free to grow, and has an effect if it shrinks."""
    return (Policy(CHANGED, effect, does, way, grows=True),)


# Ways out that several refused edits share.
MOVE_DATA = "move the data first, then `pulumi state unprotect` the listed resources and run again"
RELEASE = "remove its resources, then run `bedplate plan --write --release PATH`"
NEW_FLEET = "create a new fleet in another folder"
