"""What an edit comes to in a fleet: its policy, with the fleet around it taken into account."""

from dataclasses import dataclass
from ipaddress import IPv4Network

from bedplate.spec import Fleet
from bedplate.spec.group import Group
from bedplate.spec.site import Use
from bedplate.update.edit import Edit, edits
from bedplate.update.effect import Effect, Policy
from bedplate.update.policies import POLICIES


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
