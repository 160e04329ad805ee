"""The edits between two fleet files: every key whose value differs, and every entry that came or went."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Network

from bedplate.spec import Fleet
from bedplate.spec.base import Spec
from bedplate.spec.groups import Group, Rung
from bedplate.spec.sites import Use
from bedplate.update.policies import POLICIES, Effect, Event, Policy


@dataclass(frozen=True, slots=True)
class Edit:
    """One difference: the key, what happened there, and the value before and after (None where there was none).

    `pattern` is the key with `*` for every name that the file chose and every place in a list.
    """

    key: str
    pattern: str
    event: Event
    old: object = None
    new: object = None


@dataclass(frozen=True, slots=True)
class _Spot:
    """Where in the file the walk stands: the key, and its pattern."""

    key: str = ""
    pattern: str = ""

    def field(self, name: str) -> "_Spot":
        return _Spot(f"{self.key}.{name}".lstrip("."), f"{self.pattern}.{name}".lstrip("."))

    def entry(self, name: object) -> "_Spot":
        return _Spot(f"{self.key}.{name}", f"{self.pattern}.*")

    def edit(self, event: Event, old: object = None, new: object = None) -> Edit:
        return Edit(self.key, self.pattern, event, old, new)


def edits(before: Fleet, after: Fleet) -> tuple[Edit, ...]:
    """Return the edits that lead from one fleet to another, in the order of the file."""
    return tuple(_models(_Spot(), before, after))


def _models(spot: _Spot, old: Spec, new: Spec) -> Iterator[Edit]:
    """Yield the edits of what two models both may say; a store of another kind has other keys."""
    for name in type(new).model_fields:
        if name in type(old).model_fields:
            yield from _values(spot.field(name), getattr(old, name), getattr(new, name))


def _values(spot: _Spot, old: object, new: object) -> Iterator[Edit]:
    if old == new:
        return
    if isinstance(old, Spec) and isinstance(new, Spec):
        yield from _models(spot, old, new)
    elif isinstance(old, Mapping) and isinstance(new, Mapping) and _holds_models(old, new):
        yield from _tables(spot, old, new)
    elif isinstance(old, tuple) and isinstance(new, tuple):
        yield from _lists(spot, old, new)
    elif old is None or new is None:
        yield spot.edit(Event.REMOVED if new is None else Event.ADDED, old, new)
    else:
        yield spot.edit(Event.CHANGED, old, new)


def _holds_models(*tables: Mapping[str, object]) -> bool:
    return any(isinstance(value, Spec) for table in tables for value in table.values())


def _tables(spot: _Spot, old: Mapping[str, object], new: Mapping[str, object]) -> Iterator[Edit]:
    for name in dict.fromkeys((*old, *new)):
        here = spot.entry(name)
        if name in old and name in new:
            yield from _values(here, old[name], new[name])
        elif name in old:
            yield here.edit(Event.REMOVED, old=old[name])
        else:
            yield here.edit(Event.ADDED, new=new[name])


def _lists(spot: _Spot, old: tuple[object, ...], new: tuple[object, ...]) -> Iterator[Edit]:
    """Yield what came and what went; another order is a change by itself."""
    if _are_models(old, new):
        yield from _entries(spot, old, new)
        return
    gone, come = (tuple(each for each in one if each not in other) for one, other in ((old, new), (new, old)))
    if gone:
        yield spot.edit(Event.REMOVED, old=gone)
    if come:
        yield spot.edit(Event.ADDED, new=come)
    if not gone and not come:
        yield spot.edit(Event.CHANGED, old, new)


def _entries(spot: _Spot, old: tuple[object, ...], new: tuple[object, ...]) -> Iterator[Edit]:
    before, after = ({_known_by(each): (place, each) for place, each in enumerate(one)} for one in (old, new))
    for name, (place, each) in before.items():
        if name in after:
            yield from _values(spot.entry(after[name][0]), each, after[name][1])
        else:
            yield spot.entry(place).edit(Event.REMOVED, old=each)
    yield from (
        spot.entry(place).edit(Event.ADDED, new=each) for name, (place, each) in after.items() if name not in before
    )
    if before.keys() == after.keys() and list(before) != list(after):
        yield spot.edit(Event.CHANGED, old, new)


def _known_by(entry: object) -> object:
    """Return what makes an entry of a list the one that it is."""
    return entry.source if isinstance(entry, Rung) else entry


def _are_models(*lists: tuple[object, ...]) -> bool:
    return any(isinstance(each, Spec) for entries in lists for each in entries)


@dataclass(frozen=True, slots=True)
class Consequence:
    """An edit and what it does to what lives; `way` is the way out where it is refused."""

    edit: Edit
    effect: Effect
    does: str
    way: str = ""


def consequences(before: Fleet, after: Fleet) -> tuple[Consequence, ...]:
    """Return what every edit does, the hardest on what lives first."""
    every = (_consequence(edit, after) for edit in edits(before, after))
    return tuple(sorted(every, key=lambda one: -one.effect.weight))


def _consequence(edit: Edit, fleet: Fleet) -> Consequence:
    policy = POLICIES[edit.pattern, edit.event]
    effect = _effect(edit, policy, fleet)
    return Consequence(edit, effect, policy.does, policy.way if effect is Effect.REFUSED else "")


def _effect(edit: Edit, policy: Policy, fleet: Fleet) -> Effect:
    if policy.grows and _only_grows(edit.old, edit.new):
        return Effect.FREE
    if policy.rolls and not any(is_rolled(group) for group in _touched(edit, fleet)):
        return Effect.NEW_NODES
    return policy.effect


def is_rolled(group: Group) -> bool:
    """Tell whether a group's machines are replaced when what they start with changes.

    People work on those for ssh, and a job over a fabric ends with any of its machines.
    """
    return group.use is Use.KUBERNETES and group.fabric is None


def _touched(edit: Edit, fleet: Fleet) -> tuple[Group, ...]:
    """Return the groups that an edit is about: one of them, or all where it is about the fleet."""
    part, _, rest = edit.key.partition(".")
    if part != "groups":
        return tuple(fleet.groups.values())
    return (fleet.groups[rest.partition(".")[0]],)


def _only_grows(old: object, new: object) -> bool:
    """Tell whether a number got larger, or a block only wider, so that all that lay in it still does."""
    if isinstance(old, IPv4Network) and isinstance(new, IPv4Network):
        return old.subnet_of(new)
    return isinstance(old, int) and isinstance(new, int) and old < new
