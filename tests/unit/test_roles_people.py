"""The role `people`: accounts, keys, sudo rights, homes, and the accounts of the image."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from bedplate.errors import InputError
from bedplate.plan.fleet import Access, Account, Accounts
from roles.base import file_text
from roles.people.accounts import (
    AccountState,
    Group,
    Login,
    ReadAccounts,
    account_changes,
    end_departed,
    refuse_conflicts,
)
from roles.people.role import (
    KEPT,
    SUDOERS,
    HomesIn,
    People,
    admin_key_files,
    end_image_processes,
    lock_image_accounts,
    missing_homes,
)
from tests.testlab.fakes.node import Disk, Entry, Recorded, Recorder
from tests.testlab.fakes.node_states import ACCOUNTS, FRESH, play_people, with_accounts
from tests.testlab.fleets.random import ADA, BOB


def test_accounts_have_the_ids_of_the_lock(system: Recorded) -> None:
    """A new node gets groups first, then accounts, with the ids of fleet.lock."""
    commands = play_people(system).commands

    created = [command for command in commands if command.startswith(("groupadd", "useradd"))]
    assert created[:4] == [
        "groupadd --gid 20000 ada",
        "groupadd --gid 20001 bob",
        "groupadd --gid 50000 vision",
        "groupadd --gid 50001 speech",
    ]
    assert created[4].startswith("useradd --uid 20000 --gid 20000 --home-dir /home/ada --no-create-home")
    # Otherwise useradd assigns no subuids, because UID_MAX of login.defs is lower.
    assert "--key UID_MAX=49999" in created[4]
    assert "gpasswd --members 'ada,bob' vision" in commands


def test_the_image_account_keeps_only_administrators_keys(system: Recorded) -> None:
    """An existing key file of the image's account is replaced; a missing one is not created."""
    path = "/var/lib/ubuntu/.ssh/authorized_keys"

    with_file, without = play_people(system, (*FRESH, f"first:ubuntu:{path}")), play_people(system)

    file = with_file.step(f"Write keys of administrators to {path}").arguments["file"]
    assert file.text.splitlines()[1:] == [ADA]
    assert not [name for name in without.names if name.startswith("Write keys of administrators")]


def test_a_person_who_left_gets_no_account(system: Recorded) -> None:
    """A new node has no operation for a person who left before."""
    assert not [name for name in play_people(system).names if "eve" in name]


def test_an_account_is_locked_before_its_processes_end(system: Recorded) -> None:
    """Otherwise the person could start new processes; lingering ends as well."""
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

    played = play_people(system, lines)

    names = [name for name in played.names if "eve" in name]
    assert any("--reuid=20002" in line and "rm -rf /home/eve/.config/" in line for line in played.commands)

    assert names == [
        "Remove keys of eve",
        "Lock account eve",
        "Remove eve from audio",
        "Disable lingering of eve",
        "End all processes of eve",
    ]


def limited(access: Access) -> Accounts:
    """Return the accounts of a machine on which only ada, the administrator, may log in."""
    return replace(ACCOUNTS, people=(ACCOUNTS.people[0], replace(ACCOUNTS.people[1], access=access)))


# An account from before, with a session and a service of its own at boot.
WITH_BOB = (
    *FRESH,
    "login:bob:x:20001:20001::/home/bob:/bin/bash",
    "group:bob:x:20001:",
    "lock:bob:*:",
    "busy:20001",
    "lingering:bob",
    "keyed:bob",
)


def test_people_without_a_login_are_locked_and_own_their_files(system: Recorded) -> None:
    """On a file server, others than administrators have a locked account, their groups and a home, but no key."""
    before, new = (play_people(system, lines, limited(Access.NONE)) for lines in (WITH_BOB, FRESH))

    assert [name for name in before.names if "bob" in name] == [
        "Remove keys of bob",
        "Lock account bob",
        "Disable lingering of bob",
        "End all processes of bob",
    ]
    assert "gpasswd --members 'ada,bob' vision" in before.commands
    (create,) = [command for command in new.commands if command.startswith("useradd") and command.endswith(" bob")]
    assert "--shell /usr/sbin/nologin" in create
    assert "--expiredate 1" in create
    homes = missing_homes("/srv/home", limited(Access.NONE), {})
    assert [change.name for change in homes] == ["Create home of ada", "Create home of bob"]


def test_people_with_tokens_only_lose_what_they_left(system: Recorded) -> None:
    """On a control plane member, their sessions end, and no file of their former home is read at the next login."""
    played = play_people(system, WITH_BOB, limited(Access.TOKENS))

    commands = played.step("Update account bob").commands
    assert commands[0] == "rm -f /var/lib/systemd/linger/bob"
    assert "--expiredate 1" in commands[1]
    assert "user-20001.slice/cgroup.kill" in commands[2]
    assert commands[3].startswith("pkill -KILL --uid 20001")
    assert commands[-1] == "usermod --home / --shell /bin/sh --expiredate '' bob"
    assert "Remove keys of bob" not in played.names
    lines = (
        *FRESH,
        "login:bob:x:20001:20001::/:/bin/sh",
        "group:bob:x:20001:",
        "lock:bob:*:",
        "keyed:bob",
        "busy:20001",
    )
    assert not [name for name in play_people(system, lines, limited(Access.TOKENS)).changes if "account bob" in name]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            "login:ada:x:1001:1001::/home/ada:/bin/bash",
            "account ada has id 1001 on the node, but 20000 in the fleet",
        ),
        (
            "login:mallory:x:20000:20000::/:/bin/sh",
            "id 20000 belongs to account mallory on the node, but to ada in the fleet",
        ),
        ("group:vision:x:1003:", "group vision has id 1003 on the node, but 50000 in the fleet"),
        ("group:docker:x:50001:", "id 50001 belongs to group docker on the node, but to speech in the fleet"),
        (
            "login:eve:x:1007:1007::/:/bin/sh",
            "account eve has id 1007 on the node; eve left the fleet with id 20002",
        ),
    ],
    ids=["name", "id", "group", "group's id", "leaver's name"],
)
def test_a_conflicting_name_or_id_is_refused(system: Recorded, line: str, message: str) -> None:
    """An account or group of the node with a name or id of the fleet is an error, and nothing changes."""
    with pytest.raises(InputError) as error:
        play_people(system, (*FRESH, line))

    assert message in error.value.what
    assert error.value.fix


def test_all_conflicts_are_reported_together() -> None:
    """One error lists all conflicts of a node."""
    lines = ["login:ada:x:1001:1001::/:/bin/sh", "group:vision:x:1003:", "login:m:x:20001:20001::/:/bin/sh"]

    with pytest.raises(InputError) as error:
        refuse_conflicts(ACCOUNTS, ReadAccounts().process(lines))

    assert error.value.what.count(" on the node, but ") == 3


def test_keys_are_outside_homes(system: Recorded) -> None:
    """The keys of a person are in a file of root."""
    disk = play_people(system).disk

    assert disk.read("/etc/ssh/authorized_keys.d/ada") == f"{ADA}\n"
    assert disk.entries["/etc/ssh/authorized_keys.d/ada"].mode == 644
    assert disk.entries["/etc/ssh/authorized_keys.d/ada"].user == "root"


def test_sudo_rights_are_checked_by_visudo(system: Recorded) -> None:
    """New sudo rights are installed only after visudo has accepted them."""
    step = play_people(system).step("Set sudo rights of administrators")

    (command,) = step.commands
    assert command.startswith("visudo --check --file=/etc/bedplate/sudoers --quiet && install ")
    assert command.endswith(SUDOERS)


def test_only_administrators_have_sudo_rights(system: Recorded) -> None:
    """Without administrators, the file contains only its comment."""
    text = play_people(system).written("/etc/bedplate/sudoers")
    no_admins = Accounts((replace(ACCOUNTS.people[1]),), ACCOUNTS.groups)

    assert text.splitlines()[1:] == ["ada ALL=(ALL:ALL) NOPASSWD: ALL"]
    assert play_people(system, accounts=no_admins).written("/etc/bedplate/sudoers").count("\n") == 1


def test_a_file_server_creates_homes() -> None:
    """Clients' root cannot create homes; an existing home is not changed."""
    homes = HomesIn().process(["20000 ada", "0 lost+found"])

    (change,) = missing_homes("/srv/home", ACCOUNTS, homes)

    assert change.name == "Create home of bob"
    assert "chown -R 20001:20001 /srv/home/.bob.new" in change.commands[0]
    assert change.commands[1].endswith("mv -T /srv/home/.bob.new /srv/home/bob")


def test_no_password_hash_leaves_the_node() -> None:
    """Only the first character of the password field is read."""
    command = ReadAccounts().command()

    assert "substr($2, 1, 1)" in command
    assert command.count("/etc/shadow") == 1


def test_invalid_lines_of_passwd_are_skipped() -> None:
    """Blank lines, comments and NIS entries are ignored."""
    state = ReadAccounts().process(["login:", "login:+::::::", "login:#x:y", *FRESH, "group:", "group:+:::"])

    assert (set(state.logins), set(state.groups)) == ({"root", "ubuntu"}, {"root", "sudo"})


ADA_LOGIN = Login("ada", 20000, 20000, "/home/ada", "/bin/bash")
EVE_LOGIN = Login("eve", 20002, 20002, "/home/eve", "/usr/sbin/nologin", "!", "1")
ROOT = Login("root", 0, 0, "/root", "/bin/bash", "!")
CONFIGURED = AccountState(
    {
        "root": ROOT,
        "ada": ADA_LOGIN,
        "bob": Login("bob", 20001, 20001, "/home/bob", "/usr/bin/zsh"),
        "eve": EVE_LOGIN,
    },
    {
        **{name: Group(name, gid) for name, gid in (("ada", 20000), ("bob", 20001), ("eve", 20002))},
        "vision": Group("vision", 50000, frozenset({"ada", "bob"})),
        "speech": Group("speech", 50001, frozenset({"bob"})),
    },
)


def pending(accounts: Accounts, state: AccountState) -> list[str]:
    """Return the names of the pending changes."""
    return [change.name for change in account_changes(accounts, state)]


def with_login(login: Login) -> AccountState:
    """Return the configured node with one changed account."""
    return replace(CONFIGURED, logins={**CONFIGURED.logins, login.name: login})


def test_a_configured_node_is_not_changed() -> None:
    """A second apply finds nothing to do; a changed login shell is kept."""
    assert pending(ACCOUNTS, CONFIGURED) == []
    assert list(end_departed(ACCOUNTS, CONFIGURED)) == []


@pytest.mark.parametrize(
    ("login", "operation"),
    [
        (replace(ADA_LOGIN, lock="$"), "Update account ada"),
        (replace(ADA_LOGIN, lock=""), "Update account ada"),
        (replace(ADA_LOGIN, expires="20000"), "Update account ada"),
        (Login("ada", 20000, 20000, "/home/ada", "/usr/sbin/nologin"), "Update account ada"),
        (replace(ADA_LOGIN, gid=50000), "Update account ada"),
        (replace(ADA_LOGIN, home="/srv/ada"), "Update account ada"),
        (replace(EVE_LOGIN, expires=""), "Lock account eve"),
        (replace(EVE_LOGIN, lock="$"), "Lock account eve"),
        (Login("eve", 20002, 20002, "/home/eve", "/bin/bash", "!", "1"), "Lock account eve"),
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
def test_a_change_by_hand_is_reverted(login: Login, operation: str) -> None:
    """Each change by hand is reverted by one operation."""
    assert pending(ACCOUNTS, with_login(login)) == [operation]


def groups(**members: str) -> AccountState:
    """Return the configured node with changed group members."""
    changed = {
        name: Group(name, CONFIGURED.groups[name].gid if name in CONFIGURED.groups else 99, frozenset(names.split()))
        for name, names in members.items()
    }
    return replace(CONFIGURED, groups={**CONFIGURED.groups, **changed})


def test_groups_have_only_the_planned_members() -> None:
    """Others are removed from groups of the fleet; from system groups, only people of the fleet."""
    assert pending(ACCOUNTS, groups(vision="ada bob ubuntu")) == ["Set members of vision"]
    assert pending(ACCOUNTS, groups(speech="")) == ["Set members of speech"]
    assert pending(ACCOUNTS, groups(sudo="ubuntu bob", docker="eve")) == [
        "Remove bob from sudo",
        "Remove eve from docker",
    ]


def test_a_removed_group_is_emptied() -> None:
    """The group itself stays, because files may belong to it."""
    people = tuple(replace(person, groups=()) for person in ACCOUNTS.people)
    accounts = Accounts(people, {}, ACCOUNTS.departed, dict(ACCOUNTS.groups))

    commands = [change.commands[0] for change in account_changes(accounts, CONFIGURED)]

    assert commands == ["gpasswd --delete ada vision", "gpasswd --delete bob vision", "gpasswd --delete bob speech"]


def test_a_person_who_returns_is_unlocked() -> None:
    """The account gets its id and a shell again, without an expiry date."""
    accounts = Accounts((*ACCOUNTS.people, Account("eve", 20002, admin=False, keys=(BOB,))), ACCOUNTS.groups)

    (change,) = account_changes(accounts, CONFIGURED)

    assert change.commands == ("usermod --shell /bin/bash --expiredate '' eve",)


def test_root_processes_of_a_person_who_left_end() -> None:
    """Processes started with sudo are found by the login user id."""
    (change,) = end_departed(ACCOUNTS, replace(CONFIGURED, busy=frozenset({20002})))

    *_, sessions = change.commands
    subprocess.run(("sh", "-euc", sessions.replace("20002", "4000000001")), check=True, capture_output=True)


FILE = "/home/ubuntu/.ssh/authorized_keys"
UBUNTU_LOGIN = Login("ubuntu", 1000, 1000, "/home/ubuntu", "/bin/bash", "!")
ADMIN_LOGIN = Login("admin", 1001, 1001, "/home/admin", "/bin/bash", "$")
CLOUD = AccountState(
    {"ubuntu": UBUNTU_LOGIN},
    {"ubuntu": Group("ubuntu", 1000), "sudo": Group("sudo", 27, frozenset({"ubuntu"}))},
    busy=frozenset({1000}),
    first={"ubuntu": FILE},
    granted=frozenset({"ubuntu"}),
)
LOCKED = AccountState({"ubuntu": Login("ubuntu", 1000, 1000, "/home/ubuntu", "/usr/sbin/nologin", "*", "1")})


def test_the_account_of_a_site_s_installation_stays() -> None:
    """The account for the first apply is not locked, and keeps only the administrators' keys."""
    assert admin_key_files(CLOUD, "ubuntu") == (FILE,)
    assert list(lock_image_accounts(CLOUD, "ubuntu")) == list(end_image_processes(CLOUD, "ubuntu")) == []


def test_a_cloud_image_account_is_locked() -> None:
    """The account loses shell, password, groups, sudo rights, keys and processes; its files stay."""
    (change,) = lock_image_accounts(CLOUD, None)
    (end,) = end_image_processes(CLOUD, None)

    lock, groups, grants, keys = change.commands
    assert lock == "usermod --expiredate 1 --shell /usr/sbin/nologin --password '*' ubuntu"
    assert groups == "usermod --groups '' ubuntu"
    assert "/etc/sudoers.d/" in grants
    assert keys == f"rm -f '{FILE}'"
    assert end.name == "End all processes of ubuntu"


def test_a_locked_image_account_is_not_changed() -> None:
    """A second apply finds nothing to do."""
    assert list(lock_image_accounts(LOCKED, None)) == []


def test_other_image_accounts_are_locked_on_a_site() -> None:
    """An account with the default name of another image is locked."""
    names = [
        change.name
        for change in lock_image_accounts(replace(CLOUD, logins={**CLOUD.logins, "admin": ADMIN_LOGIN}), "ubuntu")
    ]

    assert names == ["Lock account admin of the image"]


def test_the_account_of_the_apply_is_not_locked() -> None:
    """The account with which the operator logged in is kept for this apply, with the administrators' keys."""
    logged_in = replace(CLOUD, by="ubuntu")

    assert admin_key_files(logged_in, None) == (FILE,)
    assert list(lock_image_accounts(logged_in, None)) == list(end_image_processes(logged_in, None)) == []


@pytest.mark.parametrize("uid", [0, 27, 20000], ids=["root's", "a daemon's", "a person's"])
def test_processes_of_a_shared_id_do_not_end(uid: int) -> None:
    """If the id belongs to root, a daemon or a person, no process is killed."""
    shared = replace(CLOUD, logins={"ubuntu": replace(UBUNTU_LOGIN, uid=uid)}, busy=frozenset({uid}))

    assert list(end_image_processes(shared, None)) == []


def test_the_state_of_image_accounts_is_read() -> None:
    """Key files, sudo rules and the login account are parsed."""
    state = ReadAccounts().process(["first:ubuntu:/home/ubuntu/.ssh/authorized_keys", "granted:admin", "by:ubuntu"])

    assert state == AccountState(first={"ubuntu": FILE}, granted=frozenset({"admin"}), by="ubuntu")


def test_only_the_image_account_s_sudo_rule_is_removed(tmp_path: Path) -> None:
    """Other lines stay, and visudo checks the new text."""
    *_, grants, _ = next(lock_image_accounts(CLOUD, None)).commands
    (tmp_path / "90-cloud-init-users").write_text("# made\nubuntu ALL=(ALL) NOPASSWD:ALL\nubuntu2 ALL=(ALL) ALL\n")
    script = grants.replace("/etc/sudoers.d", str(tmp_path)).replace("visudo --check --quiet --file=", "test -s ")

    subprocess.run(("sh", "-euc", script), check=True, capture_output=True)

    assert {file.name: file.read_text() for file in tmp_path.iterdir()} == {
        "90-cloud-init-users": "# made\nubuntu2 ALL=(ALL) ALL\n"
    }


CONFIRM = "Confirm access of administrators"


def test_administrators_access_is_confirmed_before_accounts_are_locked(system: Recorded) -> None:
    """Files are saved, written and confirmed before an account is locked."""
    names = play_people(system, (*FRESH, "login:eve:x:20002:20002::/home/eve:/bin/bash", "lock:eve:*:")).names

    order = [
        "Save access of administrators",
        "Write keys of ada",
        "Set sudo rights of administrators",
        CONFIRM,
        "Lock account eve",
    ]
    assert [name for name in names if name in order] == order


def test_other_people_need_no_confirmation(system: Recorded) -> None:
    """A new key of a person without sudo rights needs no confirmation."""
    disk = play_people(system).disk
    disk.write(SUDOERS, Entry(content=disk.read("/etc/bedplate/sudoers"), mode=440))
    others = replace(ACCOUNTS, people=(ACCOUNTS.people[0], replace(ACCOUNTS.people[1], keys=(ADA,))))

    again = Recorder(with_accounts(system, FRESH), disk).play(People(others), stages=("configure",))

    assert "Write keys of bob" in again.changes
    assert CONFIRM not in again.names


def test_an_interrupted_confirmation_is_repeated(system: Recorded) -> None:
    """Otherwise the node would revert the files after an apply without changes."""
    disk = play_people(system).disk
    disk.write(SUDOERS, Entry(content=disk.read("/etc/bedplate/sudoers"), mode=440))
    kept = Disk.of({KEPT: "/etc/sudoers.d/bedplate\n"}).entries[KEPT]

    confirmed = Recorder(with_accounts(system, FRESH), disk).play(People(ACCOUNTS), stages=("configure",))
    disk.write(KEPT, kept)
    interrupted = Recorder(with_accounts(system, FRESH), disk).play(People(ACCOUNTS), stages=("configure",))

    assert CONFIRM not in confirmed.names
    assert [name for name in interrupted.names if name in ("Save access of administrators", CONFIRM)] == [
        "Save access of administrators",
        CONFIRM,
    ]


def test_shellcheck_accepts_bedplate_trial_people() -> None:
    """The script that reverts keys passes shellcheck."""
    shellcheck = str(Path(sys.executable).with_name("shellcheck"))
    text = file_text("people/bedplate-trial-people")

    process = subprocess.run([shellcheck, "-"], input=text, capture_output=True, text=True, check=False)

    assert process.stdout == ""
