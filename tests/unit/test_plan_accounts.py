"""Ids of people and groups: given once, kept for ever."""

from typing import Any

import pytest

from bedplate.plan import Record
from bedplate.plan.accounts import GROUP_IDS, PEOPLE_IDS, accounts
from bedplate.plan.planner import plan_fleet
from bedplate.spec import Fleet
from bedplate.spec.account import RESERVED_USERS
from tests.support.fleets import ADA as KEY
from tests.support.sketch import catalog, sketch

NOBODY = Record({})


def lab(*names: str, **groups: list[str]) -> Fleet:
    """Return a fleet of these people, and of those in groups."""
    people: dict[str, Any] = {name: {"keys": (KEY,)} for name in names}
    return sketch(people=people | {name: {"keys": (KEY,), "groups": tuple(told)} for name, told in groups.items()})


def recorded(*fleets: Fleet) -> Record:
    """Return what the lock holds after these fleets were recorded one after the other."""
    record = NOBODY
    for fleet in fleets:
        record = plan_fleet(fleet, record, catalog()).recorded()
    return record


def test_people_are_numbered_in_the_order_of_the_file() -> None:
    """A first plan gives ids from the first on, groups by where they are named first."""
    given = accounts(lab("ada", bob=["vision", "speech"], eve=["speech", "robots"]), NOBODY)

    assert given.uids == {"ada": 20000, "bob": 20001, "eve": 20002}
    assert given.groups == {"vision": 50000, "speech": 50001, "robots": 50002}
    assert given.departed == {}


def test_somebody_who_comes_first_in_the_file_moves_nobody() -> None:
    """Files belong to numbers."""
    record = recorded(lab("bob", "eve"))

    given = accounts(lab("ada", "bob", "eve"), record)

    assert given.uids == {"ada": 20002, "bob": 20000, "eve": 20001}


def test_who_left_and_returns_has_the_old_id() -> None:
    """Their files are still theirs, and nobody had the id meanwhile."""
    record = recorded(lab("ada", "bob", eve=["vision"]), lab("ada"), lab("ada", carl=["speech"]))

    given = accounts(lab("ada", carl=["speech"], bob=["vision"]), record)

    assert given.uids == {"ada": 20000, "carl": 20003, "bob": 20001}
    assert given.groups == {"speech": 50001, "vision": 50000}
    assert (given.departed, given.past_groups) == ({"eve": 20002}, {})


def test_a_group_that_nobody_is_in_is_remembered() -> None:
    """Its files are still about, and its members must go from it."""
    given = accounts(lab(bob=["speech"]), recorded(lab(bob=["vision"])))

    assert (given.groups, given.past_groups) == ({"speech": 50001}, {"vision": 50000})


def test_no_id_is_anybody_elses() -> None:
    """Over any number of files, also where the last of the ids goes."""
    record = recorded(*(lab(f"p{n}", q=[f"g{n}"]) for n in range(20)))

    assert len({*record.people.values(), *record.groups.values()}) == len(record.people) + len(record.groups) == 41


def test_the_last_id_is_given() -> None:
    """Only what comes after it is refused."""
    record = Record({}, people={"ada": PEOPLE_IDS[-2]}, groups={"vision": GROUP_IDS[-2]})

    given = accounts(lab(eve=["speech"]), record)

    assert (given.uids, given.groups) == ({"eve": PEOPLE_IDS[-1]}, {"speech": GROUP_IDS[-1]})


@pytest.mark.parametrize(
    "name", ["video", "render", "docker", "systemd-journal", "users", "prometheus", "sugroup", "frr"]
)
def test_nobody_is_called_like_what_packages_make(name: str) -> None:
    """A node would have one name with two ids."""
    assert name in RESERVED_USERS
