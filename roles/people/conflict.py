"""Names and ids of the fleet's that somebody else has on a node: told in words, never taken over."""

from collections.abc import Iterator, Mapping

from bedplate.errors import InputError
from bedplate.plan.accounts import Accounts
from roles.people.standing import Standing


def refuse_conflicts(accounts: Accounts, standing: Standing) -> None:
    """Raise InputError where a name or an id of the fleet's is somebody else's on the node."""
    logins = {name: login.uid for name, login in standing.logins.items()}
    groups = {name: group.gid for name, group in standing.groups.items()}
    found = (
        *_conflicts("account", accounts.uids, logins),
        *_departed(accounts.departed, logins),
        *_conflicts("group", {**accounts.uids, **accounts.groups}, groups),
    )
    if found:
        raise InputError(
            "; ".join(found),
            fix="rename what is there (`usermod`, `groupmod`), with its files, or remove it: those of the fleet have "
            "their names and ids in fleet.lock for ever",
        )


def _conflicts(noun: str, wanted: Mapping[str, int], there: Mapping[str, int]) -> Iterator[str]:
    names = {number: name for name, number in there.items()}
    for name, number in wanted.items():
        if there.get(name, number) != number:
            yield f"the {noun} {name} has id {there[name]} here, not the fleet's {number}"
        elif names.get(number, name) != name:
            yield f"id {number} is the {noun} {names[number]}'s here, not {name}'s"


def _departed(departed: Mapping[str, int], there: Mapping[str, int]) -> Iterator[str]:
    """Yield those who would be locked out for a name that is another's here."""
    for name, number in departed.items():
        if there.get(name, number) != number:
            yield f"{name}, who left the fleet with id {number}, is another account here, with id {there[name]}"
