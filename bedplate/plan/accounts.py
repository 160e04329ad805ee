"""People's accounts: a user id for each and a group id for each group, which the lock remembers for ever.

Files on shared storage belong to numbers, not to names: an id is never given to anybody else.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from bedplate.plan.record import NO_NUMBERS, Record
from bedplate.spec import Fleet

# Above what distributions give out (1000-19999 here), below systemd's own ranges (60001 and on).
# Source: https://systemd.io/UIDS-GIDS/.
NUMBERS = range(20000, 60000)
_FIRST_GROUP = 50000


@dataclass(frozen=True, slots=True)
class Account:
    """A person on every node: `uid` is also the id of the group of their own."""

    name: str
    uid: int
    admin: bool
    keys: tuple[str, ...]
    groups: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Accounts:
    """Everybody: who has an account, the groups they belong to with their ids, and who had one, by name and id."""

    people: tuple[Account, ...] = ()
    groups: Mapping[str, int] = field(default_factory=lambda: NO_NUMBERS)
    departed: Mapping[str, int] = field(default_factory=lambda: NO_NUMBERS)


NO_ACCOUNTS = Accounts()


def accounts(fleet: Fleet, record: Record) -> Accounts:
    """Return the accounts of today's file; whoever the lock knows keeps their id."""
    uids = _numbered(fleet.people, record.people, range(NUMBERS.start, _FIRST_GROUP))
    names = dict.fromkeys(name for person in fleet.people.values() for name in person.groups)
    gids = _numbered(names, record.groups, range(_FIRST_GROUP, NUMBERS.stop))
    people = tuple(
        Account(name, uids[name], person.admin, person.keys, person.groups) for name, person in fleet.people.items()
    )
    departed = {name: uid for name, uid in record.people.items() if name not in fleet.people}
    return Accounts(people, gids, departed)


def _numbered(names: Iterable[str], recorded: Mapping[str, int], numbers: range) -> dict[str, int]:
    """Return an id for each name: the recorded one, or the next above all that were ever given."""
    given = [number for number in recorded.values() if number in numbers]
    following = iter(range(max(given, default=numbers.start - 1) + 1, numbers.stop))
    return {name: recorded[name] if name in recorded else next(following) for name in names}
