"""What the role `people` makes of a node's accounts."""

from dataclasses import replace

import pytest

from bedplate.errors import InputError
from bedplate.plan.accounts import Accounts
from roles.people.conflict import refuse_conflicts
from roles.people.homes import HomesIn, missing_homes
from roles.people.role import SUDOERS
from roles.people.standing import Accounted
from tests.support.crowd import ACCOUNTS, FRESH, played
from tests.support.fleets import ADA
from tests.support.recorded import Recorded


def test_a_fresh_node_gets_accounts_with_the_ids_of_the_lock(system: Recorded) -> None:
    """Groups first, for accounts are made in them."""
    commands = played(system).commands

    made = [command for command in commands if command.startswith(("groupadd", "useradd"))]
    assert made[:4] == [
        "groupadd --gid 20000 ada",
        "groupadd --gid 20001 bob",
        "groupadd --gid 50000 vision",
        "groupadd --gid 50001 speech",
    ]
    assert made[4].startswith("useradd --uid 20000 --gid 20000 --home-dir /home/ada --no-create-home")
    # Without it useradd gives no ids to containers: login.defs ends below people's.
    assert "--key UID_MAX=49999" in made[4]
    assert "gpasswd --members 'ada,bob' vision" in commands


def test_the_first_account_keeps_administrators_keys_alone(system: Recorded) -> None:
    """Whoever wrote the file that is there; one that is missing stays so."""
    theirs = "/var/lib/ubuntu/.ssh/authorized_keys"

    with_file, without = played(system, (*FRESH, f"first:ubuntu:{theirs}")), played(system)

    file = with_file.step(f"Administrators in {theirs}").arguments["file"]
    assert file.text.splitlines()[1:] == [ADA]
    assert not [name for name in without.names if name.startswith("Administrators in")]


def test_who_left_before_the_node_was_made_has_no_account_on_it(system: Recorded) -> None:
    """There is nothing to lock out."""
    assert not [name for name in played(system).names if "eve" in name]


def test_who_leaves_is_locked_out_before_their_processes_end(system: Recorded) -> None:
    """Otherwise they could start new ones meanwhile; what lingers ends too."""
    lines = (
        *FRESH,
        "login:eve:x:20002:20002::/home/eve:/bin/bash",
        "group:eve:x:20002:",
        "group:audio:x:29:eve",
        "lock:eve:$:",
        "busy:20002",
        "lingering:eve",
        "keyed:eve",
    )

    names = [name for name in played(system, lines).names if "eve" in name]

    assert names == [
        "No keys of eve",
        "eve is locked out",
        "eve is not in audio",
        "eve starts nothing at boot",
        "eve runs nothing",
    ]


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (("login:ada:x:1001:1001::/home/ada:/bin/bash",), "the account ada has id 1001 here, not the fleet's 20000"),
        (("login:mallory:x:20000:20000::/:/bin/sh",), "id 20000 is the account mallory's here, not ada's"),
        (("group:vision:x:1003:",), "the group vision has id 1003 here, not the fleet's 50000"),
        (("group:docker:x:50001:",), "id 50001 is the group docker's here, not speech's"),
        (("login:eve:x:1007:1007::/:/bin/sh",), "eve, who left the fleet with id 20002, is another account here"),
    ],
    ids=["name", "id", "group", "group's id", "leaver's name"],
)
def test_what_somebody_else_has_is_refused_before_anything_changes(
    system: Recorded, lines: tuple[str, ...], words: str
) -> None:
    """Taking it over would give one person's files to another."""
    with pytest.raises(InputError) as refusal:
        played(system, (*FRESH, *lines))

    assert words in refusal.value.what
    assert refusal.value.fix


def test_all_conflicts_are_told_at_once() -> None:
    """An operator goes to the node once."""
    lines = ["login:ada:x:1001:1001::/:/bin/sh", "group:vision:x:1003:", "login:m:x:20001:20001::/:/bin/sh"]

    with pytest.raises(InputError) as refusal:
        refuse_conflicts(ACCOUNTS, Accounted().process(lines))

    assert refusal.value.what.count(" here, not ") == 3


def test_keys_lie_outside_homes(system: Recorded) -> None:
    """Each person's in a file of root's, a key a line."""
    disk = played(system).disk

    assert disk.read("/etc/ssh/authorized_keys.d/ada") == f"{ADA}\n"
    assert disk.entries["/etc/ssh/authorized_keys.d/ada"].mode == 644
    assert disk.entries["/etc/ssh/authorized_keys.d/ada"].user == "root"


def test_sudo_reads_only_what_visudo_has_read(system: Recorded) -> None:
    """The text counts when it is whole and right; another administrator is one operation."""
    step = played(system).step("Administrators")

    (command,) = step.commands
    assert command.startswith("visudo --check --file=/etc/bedplate/sudoers --quiet && install ")
    assert command.endswith(SUDOERS)


def test_administrators_alone_are_in_the_rules(system: Recorded) -> None:
    """In the order of the file; a fleet without any has rules for nobody."""
    text = played(system).written("/etc/bedplate/sudoers")
    nobody = Accounts((replace(ACCOUNTS.people[1]),), ACCOUNTS.groups)

    assert text.splitlines()[1:] == ["ada ALL=(ALL:ALL) NOPASSWD: ALL"]
    assert played(system, accounts=nobody).written("/etc/bedplate/sudoers").count("\n") == 1


def test_a_file_server_makes_homes_whole() -> None:
    """For on its clients root is nobody; a home that is there is its owner's."""
    there = HomesIn().process(["20000 ada", "0 lost+found"])

    (due,) = missing_homes("/srv/home", ACCOUNTS, there)

    assert due.name == "Home of bob"
    assert "chown -R 20001:20001 /srv/home/.bob.new" in due.commands[0]
    assert due.commands[1].endswith("mv -T /srv/home/.bob.new /srv/home/bob")


def test_no_hash_of_a_password_leaves_a_node() -> None:
    """Of the field, the first sign tells whether it is locked."""
    command = Accounted().command()

    assert "substr($2, 1, 1)" in command
    assert command.count("/etc/shadow") == 1


def test_lines_that_are_nobodys_are_skipped() -> None:
    """A blank line, one that somebody commented out, and one that asks another list end no apply."""
    told = Accounted().process(["login:", "login:+::::::", "login:#x:y", *FRESH, "group:", "group:+:::"])

    assert (set(told.logins), set(told.groups)) == ({"root", "ubuntu"}, {"root", "sudo"})
