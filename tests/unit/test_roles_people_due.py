"""What is due about a node's accounts, from what they are and what the plan wants."""

import subprocess
from dataclasses import replace

import pytest

from bedplate.plan.accounts import Account, Accounts
from roles.people.due import dues, endings
from roles.people.standing import Group, Login, Standing
from tests.support.crowd import ACCOUNTS
from tests.support.fleets import BOB

ADA_THERE = Login("ada", 20000, 20000, "/home/ada", "/bin/bash")
EVE_THERE = Login("eve", 20002, 20002, "/home/eve", "/usr/sbin/nologin", "!", "1")
ROOT = Login("root", 0, 0, "/root", "/bin/bash", "!")
SETTLED = Standing(
    {
        "root": ROOT,
        "ada": ADA_THERE,
        "bob": Login("bob", 20001, 20001, "/home/bob", "/usr/bin/zsh"),
        "eve": EVE_THERE,
    },
    {
        **{name: Group(name, gid) for name, gid in (("ada", 20000), ("bob", 20001), ("eve", 20002))},
        "vision": Group("vision", 50000, frozenset({"ada", "bob"})),
        "speech": Group("speech", 50001, frozenset({"bob"})),
    },
)


def told(accounts: Accounts, standing: Standing) -> list[str]:
    """Return what is due, by name."""
    return [due.name for due in dues(accounts, standing)]


def altered(login: Login) -> Standing:
    """Return the settled node with one account otherwise."""
    return replace(SETTLED, logins={**SETTLED.logins, login.name: login})


def test_a_node_that_is_as_planned_is_left_alone() -> None:
    """A second apply finds nothing to do; a shell of somebody's own choice is theirs."""
    assert told(ACCOUNTS, SETTLED) == []
    assert list(endings(ACCOUNTS, SETTLED)) == []


@pytest.mark.parametrize(
    ("login", "due"),
    [
        (replace(ADA_THERE, lock="$"), "Account ada"),
        (replace(ADA_THERE, lock=""), "Account ada"),
        (replace(ADA_THERE, expires="20000"), "Account ada"),
        (Login("ada", 20000, 20000, "/home/ada", "/usr/sbin/nologin"), "Account ada"),
        (replace(ADA_THERE, gid=50000), "Account ada"),
        (replace(ADA_THERE, home="/srv/ada"), "Account ada"),
        (replace(EVE_THERE, expires=""), "eve is locked out"),
        (replace(EVE_THERE, lock="$"), "eve is locked out"),
        (Login("eve", 20002, 20002, "/home/eve", "/bin/bash", "!", "1"), "eve is locked out"),
        (replace(ROOT, lock="$"), "Root's password is locked"),
        (replace(ROOT, lock=""), "Root's password is locked"),
    ],
    ids=[
        "password",
        "no password at all",
        "end",
        "shell",
        "group",
        "home",
        "back",
        "back by password",
        "back by shell",
        "root by password",
        "root by none",
    ],
)
def test_what_somebody_changed_by_hand_is_changed_back(login: Login, due: str) -> None:
    """Each drift is told as the one account that it is about."""
    assert told(ACCOUNTS, altered(login)) == [due]


def groups(**members: str) -> Standing:
    """Return the settled node with other members of groups."""
    there = {
        name: Group(name, SETTLED.groups[name].gid if name in SETTLED.groups else 99, frozenset(told.split()))
        for name, told in members.items()
    }
    return replace(SETTLED, groups={**SETTLED.groups, **there})


def test_groups_have_the_members_of_the_file_alone() -> None:
    """Also strangers go from the fleet's own groups; the system's lose people of the fleet alone."""
    assert told(ACCOUNTS, groups(vision="ada bob ubuntu")) == ["Members of vision"]
    assert told(ACCOUNTS, groups(speech="")) == ["Members of speech"]
    assert told(ACCOUNTS, groups(sudo="ubuntu bob", docker="eve")) == ["bob is not in sudo", "eve is not in docker"]


def test_a_group_that_left_the_file_is_emptied() -> None:
    """Its name and id stay, for files belong to it."""
    people = tuple(replace(person, groups=()) for person in ACCOUNTS.people)
    accounts = Accounts(people, {}, ACCOUNTS.departed, dict(ACCOUNTS.groups))

    found = [due.commands[0] for due in dues(accounts, SETTLED)]

    assert found == ["gpasswd --delete ada vision", "gpasswd --delete bob vision", "gpasswd --delete bob speech"]


def test_who_returns_is_let_in_again() -> None:
    """With the old id, a shell, and no end."""
    accounts = Accounts((*ACCOUNTS.people, Account("eve", 20002, admin=False, keys=(BOB,))), ACCOUNTS.groups)

    (due,) = dues(accounts, SETTLED)

    assert due.commands == ("usermod --shell /bin/bash --expiredate '' eve",)


def test_what_somebody_who_left_became_root_for_ends_too() -> None:
    """The kernel remembers who logged in, whoever they are by now; the loop ends well where there is none of them."""
    (due,) = endings(ACCOUNTS, replace(SETTLED, busy=frozenset({20002})))

    _, sessions = due.commands
    subprocess.run(("sh", "-euc", sessions.replace("20002", "4000000001")), check=True, capture_output=True)
