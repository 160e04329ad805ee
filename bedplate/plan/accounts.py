"""People's accounts: a user id for each and a group id for each group, which the lock remembers for ever.

Files on shared storage belong to numbers, not to names: an id is never given to anybody else.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from bedplate.plan.fault import PlanFault, PlanFaults
from bedplate.plan.record import NO_NUMBERS, Record
from bedplate.spec import Fleet

# Above what distributions give out (1000-19999 here), below systemd's own ranges (60001 and on).
# Source: https://systemd.io/UIDS-GIDS/.
PEOPLE_IDS = range(20000, 50000)
GROUP_IDS = range(50000, 60000)


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
    """Everybody: who has an account, the groups they belong to with their ids, and who and what is gone, by id."""

    people: tuple[Account, ...] = ()
    groups: Mapping[str, int] = field(default_factory=lambda: NO_NUMBERS)
    departed: Mapping[str, int] = field(default_factory=lambda: NO_NUMBERS)
    past_groups: Mapping[str, int] = field(default_factory=lambda: NO_NUMBERS)

    @property
    def uids(self) -> Mapping[str, int]:
        """The user id of everybody who has an account, by name."""
        return {person.name: person.uid for person in self.people}


NO_ACCOUNTS = Accounts()


def accounts(fleet: Fleet, record: Record) -> Accounts:
    """Return the accounts of today's file; whoever the lock knows keeps their id. Raises PlanFaults."""
    people = {name: f"people.{name}" for name in fleet.people}
    groups = _first_named(fleet)
    refused = (
        *_taken(people, record.groups, "a group"),
        *_taken(groups, record.people, "a person"),
        *_too_many(people, record.people, PEOPLE_IDS),
        *_too_many(groups, record.groups, GROUP_IDS),
    )
    if refused:
        raise PlanFaults(refused)
    uids = _numbered(people, record.people, PEOPLE_IDS)
    departed = {name: uid for name, uid in record.people.items() if name not in people}
    having = tuple(
        Account(name, uids[name], person.admin, person.keys, person.groups) for name, person in fleet.people.items()
    )
    past = {name: gid for name, gid in record.groups.items() if name not in groups}
    return Accounts(having, _numbered(groups, record.groups, GROUP_IDS), departed, past)


def _first_named(fleet: Fleet) -> Mapping[str, str]:
    """Return each group that somebody is in, with the key that names it first."""
    found: dict[str, str] = {}
    for person, told in fleet.people.items():
        for place, group in enumerate(told.groups):
            found.setdefault(group, f"people.{person}.groups.{place}")
    return found


def _taken(names: Mapping[str, str], recorded: Mapping[str, int], noun: str) -> Iterator[PlanFault]:
    """Yield the names under which the lock knows somebody of the other kind."""
    for name, key in names.items():
        if name in recorded:
            message = f"the lock knows {name} as {noun}, whose files may still be about"
            yield PlanFault("E518", key, message, "choose another name: names and ids are for ever")


def _too_many(names: Mapping[str, str], recorded: Mapping[str, int], ids: range) -> Iterator[PlanFault]:
    """Yield the first name for which no id is left."""
    fresh = [name for name in names if name not in recorded]
    room = ids.stop - _next(recorded, ids)
    if len(fresh) > room:
        message = f"no id is left for {fresh[room]}: {ids.start} to {ids.stop - 1} were all given before"
        yield PlanFault("E517", names[fresh[room]], message, "take a name that the lock knows: it keeps its id")


def _numbered(names: Iterable[str], recorded: Mapping[str, int], ids: range) -> dict[str, int]:
    """Return an id for each name: the recorded one, or the next above all that were ever given."""
    fresh = (name for name in names if name not in recorded)
    given = dict(zip(fresh, range(_next(recorded, ids), ids.stop), strict=False))
    return {name: recorded[name] if name in recorded else given[name] for name in names}


def _next(recorded: Mapping[str, int], ids: range) -> int:
    return max(recorded.values(), default=ids.start - 1) + 1
