"""Earlier identities of a resource: its own aliases, and those it inherits from a parent that was renamed."""

from collections.abc import Iterable, Iterator
from itertools import product

from bedplate.rehearsal import urn as urns
from bedplate.rehearsal.registration import AliasSpec, Registration


def earlier_urns(asked: Registration, urn: str, parents: Iterable[str]) -> tuple[str, ...]:
    """Return the URNs that a resource may have had, its present one left out.

    `parents` are the earlier URNs of its parent; a child named after its parent was renamed with it.
    """
    specs = (AliasSpec(), *asked.aliases)
    found = (one for spec in specs for one in _of_spec(spec, asked, urn, tuple(parents)))
    return tuple(dict.fromkeys(one for one in found if one != urn))


def _of_spec(spec: AliasSpec, asked: Registration, urn: str, parents: tuple[str, ...]) -> Iterator[str]:
    if spec.urn:
        yield spec.urn
        return
    now = urns.parse(urn)
    token = spec.type or asked.type
    stacks = product((spec.stack or now.stack,), (spec.project or now.project,))
    for (stack, project), parent in product(stacks, _parents(spec, asked, parents)):
        yield urns.child(stack, project, parent, token, spec.name or _renamed(asked, parent))


def _parents(spec: AliasSpec, asked: Registration, parents: tuple[str, ...]) -> tuple[str, ...]:
    if spec.no_parent:
        return ("",)
    return (spec.parent,) if spec.parent else (asked.parent, *parents)


def _renamed(asked: Registration, parent: str) -> str:
    """Return the name a child had under an earlier parent: `db-disk` of `db` was `base-disk` of `base`."""
    if not parent or not asked.parent or parent == asked.parent:
        return asked.name
    now, before = urns.parse(asked.parent).name, urns.parse(parent).name
    return before + asked.name[len(now) :] if asked.name.startswith(now) else asked.name
