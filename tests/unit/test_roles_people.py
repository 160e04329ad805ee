"""What the role `people` makes of a node's accounts."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from bedplate.errors import InputError
from bedplate.plan.fleet import Account, Accounts
from roles.files import text_of
from roles.people.accounts import Accounted, Group, Login, Standing, dues, endings, refuse_conflicts
from roles.people.role import KEPT, SUDOERS, HomesIn, People, image_endings, key_files, missing_homes, shuttings
from tests.testlab.fakes.node import Disk, Entry, Recorded, Recorder
from tests.testlab.fakes.node_states import ACCOUNTS, FRESH, with_accounts, played
from tests.testlab.fleets.random import ADA, BOB


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
    step = played(system).step("Set sudo rights of administrators")

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

    assert (set(told.logins), set(told.groups)) == ({"root", "ubuntu"}, {"root", "Configure sudo"})


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
        (replace(ROOT, lock="$"), "Lock the password of root"),
        (replace(ROOT, lock=""), "Lock the password of root"),
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


FILE = "/home/ubuntu/.ssh/authorized_keys"
OPEN = Login("ubuntu", 1000, 1000, "/home/ubuntu", "/bin/bash", "!")
OPEN_ADMIN = Login("admin", 1001, 1001, "/home/admin", "/bin/bash", "$")
CLOUD = Standing(
    {"ubuntu": OPEN},
    {"ubuntu": Group("ubuntu", 1000), "Configure sudo": Group("Configure sudo", 27, frozenset({"ubuntu"}))},
    busy=frozenset({1000}),
    first={"ubuntu": FILE},
    granted=frozenset({"ubuntu"}),
)
SHUT = Standing({"ubuntu": Login("ubuntu", 1000, 1000, "/home/ubuntu", "/usr/sbin/nologin", "*", "1")})


def test_the_first_account_of_a_site_stays_with_administrators_keys_alone() -> None:
    """Also without the line by which bedplate says that it wrote the file."""
    assert key_files(CLOUD, "ubuntu") == (FILE,)
    assert list(shuttings(CLOUD, "ubuntu")) == list(image_endings(CLOUD, "ubuntu")) == []


def test_an_account_of_the_clouds_image_is_shut() -> None:
    """It loses shell, password, groups, rights and keys, and what it runs; the account stays, for files are its own."""
    (due,) = shuttings(CLOUD, None)
    (end,) = image_endings(CLOUD, None)

    lock, groups, grants, keys = due.commands
    assert lock == "usermod --expiredate 1 --shell /usr/sbin/nologin --password '*' ubuntu"
    assert groups == "usermod --groups '' ubuntu"
    assert "/etc/sudoers.d/" in grants
    assert keys == f"rm -f '{FILE}'"
    assert end.name == "ubuntu runs nothing"


def test_an_account_that_is_shut_is_left_alone() -> None:
    """A second apply finds nothing to do."""
    assert list(shuttings(SHUT, None)) == []


def test_other_accounts_of_images_are_shut_on_a_site_too() -> None:
    """One that was made under such a name is no way in."""
    found = [due.name for due in shuttings(replace(CLOUD, logins={**CLOUD.logins, "admin": OPEN_ADMIN}), "ubuntu")]

    assert found == ["admin of the image is shut"]


def test_whoever_applies_by_one_is_not_cut_off() -> None:
    """A machine that nobody else comes in to yet must let its apply end; its keys are administrators' from then on."""
    mine = replace(CLOUD, by="ubuntu")

    assert key_files(mine, None) == (FILE,)
    assert list(shuttings(mine, None)) == list(image_endings(mine, None)) == []


@pytest.mark.parametrize("uid", [0, 27, 20000], ids=["root's", "a daemon's", "a person's"])
def test_a_number_that_is_somebody_elses_ends_nobodys_work(uid: int) -> None:
    """Root's own programs would go with it."""
    taken = replace(CLOUD, logins={"ubuntu": replace(OPEN, uid=uid)}, busy=frozenset({uid}))

    assert list(image_endings(taken, None)) == []


def test_the_node_tells_what_each_has() -> None:
    """File of keys, rule of sudo, and by whom one came in."""
    told = Accounted().process(["first:ubuntu:/home/ubuntu/.ssh/authorized_keys", "granted:admin", "by:ubuntu"])

    assert told == Standing(first={"ubuntu": FILE}, granted=frozenset({"admin"}), by="ubuntu")


def test_a_rule_of_sudo_goes_and_those_of_others_stay(tmp_path: Path) -> None:
    """The text is read by visudo before it counts."""
    *_, grants, _ = next(shuttings(CLOUD, None)).commands
    (tmp_path / "90-cloud-init-users").write_text("# made\nubuntu ALL=(ALL) NOPASSWD:ALL\nubuntu2 ALL=(ALL) ALL\n")
    bare = grants.replace("/etc/sudoers.d", str(tmp_path)).replace("visudo --check --quiet --file=", "test -s ")

    subprocess.run(("sh", "-euc", bare), check=True, capture_output=True)

    assert {each.name: each.read_text() for each in tmp_path.iterdir()} == {
        "90-cloud-init-users": "# made\nubuntu2 ALL=(ALL) ALL\n"
    }


KEYS_ON_TRIAL = "Confirm access of administrators"


def test_administrators_ways_are_tried_before_anybody_is_locked_out(system: Recorded) -> None:
    """What was there is kept, all is written, somebody comes in anew, and only then who left goes."""
    names = played(system, (*FRESH, "login:eve:x:20002:20002::/home/eve:/bin/bash", "lock:eve:*:")).names

    order = ["Save access of administrators", "Keys of ada", "Set sudo rights of administrators", KEYS_ON_TRIAL, "eve is locked out"]
    assert [name for name in names if name in order] == order


def test_a_person_without_rights_is_no_trial(system: Recorded) -> None:
    """Nobody applies as them: their key, their coming and their going keep no administrator waiting."""
    disk = played(system).disk
    disk.write(SUDOERS, Entry(content=disk.read("/etc/bedplate/sudoers"), mode=440))
    others = replace(ACCOUNTS, people=(ACCOUNTS.people[0], replace(ACCOUNTS.people[1], keys=(ADA,))))

    again = Recorder(with_accounts(system, FRESH), disk).play(People(others), stages=("configure",))

    assert "Keys of bob" in again.changes
    assert KEYS_ON_TRIAL not in again.names


def test_a_trial_that_was_cut_off_is_ended_by_the_next_apply(system: Recorded) -> None:
    """All is written and nobody has come in by it: alone, the node would go back after an apply that ended fine."""
    disk = played(system).disk
    disk.write(SUDOERS, Entry(content=disk.read("/etc/bedplate/sudoers"), mode=440))
    kept = Disk.of({KEPT: "/etc/sudoers.d/bedplate\n"}).entries[KEPT]

    settled = Recorder(with_accounts(system, FRESH), disk).play(People(ACCOUNTS), stages=("configure",))
    disk.write(KEPT, kept)
    cut = Recorder(with_accounts(system, FRESH), disk).play(People(ACCOUNTS), stages=("configure",))

    assert KEYS_ON_TRIAL not in settled.names
    assert [name for name in cut.names if name in ("Save access of administrators", KEYS_ON_TRIAL)] == [
        "Save access of administrators",
        KEYS_ON_TRIAL,
    ]


def test_shellcheck_finds_nothing_in_the_trial_of_keys() -> None:
    """The program that goes back must not fail for a slip of the shell."""
    shellcheck = str(Path(sys.executable).with_name("shellcheck"))
    text = text_of("people/bedplate-trial-people")

    done = subprocess.run([shellcheck, "-"], input=text, capture_output=True, text=True, check=False)

    assert done.stdout == ""
