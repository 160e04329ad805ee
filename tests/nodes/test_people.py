"""Accounts on a booted machine: who comes, who may what, who leaves."""

from dataclasses import replace

import pytest

from bedplate.plan.fleet import Account, Accounts
from roles.people.role import People
from tests.testlab.machines.container import CommandError
from tests.testlab.machines.desk import make_key
from tests.testlab.machines.operator import deployed
from tests.testlab.machines.stand import Node, Stand
from tests.testlab.run import need_program

pytestmark = pytest.mark.nightly

NAME = "titan-01.cellar"
# As the role `hardened` has it; this machine has the role `people` alone.
READS_KEYS = "printf 'AuthorizedKeysFile /etc/ssh/authorized_keys.d/%%u .ssh/authorized_keys\\n'"


@pytest.fixture(scope="module")
def accounts(stand: Stand) -> Accounts:
    """Give two people, both with the operator's key, for whom it is at hand."""
    key = (stand.folder / "operator.pub").read_text().strip()
    other = make_key(stand.folder / "eve", "eve")
    people = (
        Account("ada", 20000, admin=True, keys=(key,), groups=("vision",)),
        Account("eve", 20001, admin=False, keys=(key, other), groups=("vision", "speech")),
    )
    return Accounts(people, {"vision": 50000, "speech": 50001})


@pytest.fixture(scope="module")
def without_eve(accounts: Accounts) -> Accounts:
    """Give the accounts after one of them left."""
    return Accounts(accounts.people[:1], {"vision": 50000}, {"eve": 20001}, {"speech": 50001})


@pytest.fixture(scope="module")
def node(stand: Stand, accounts: Accounts) -> Node:
    """Give a machine with both accounts."""
    need_program("ssh")
    booted = stand.boot(NAME, "192.168.40.21")
    booted.run(f"{READS_KEYS} > /etc/ssh/sshd_config.d/keys.conf; systemctl restart ssh")
    deployed(stand, NAME, People(accounts))
    return booted


def test_people_come_in_by_their_key_and_find_a_home(node: Node) -> None:
    """Made at the first login, for its owner alone; the id is the fleet's."""
    done = node.ssh("id --user; id --groups --name; pwd; stat --format=%a .", user="ada")

    assert done.stdout.splitlines() == ["20000", "ada vision", "/home/ada", "700"], done.stderr


def test_administrators_become_root_and_nobody_else(node: Node) -> None:
    """Without a password, for there is none; others are refused."""
    assert node.ssh("sudo --non-interactive id --user", user="ada").stdout.strip() == "0"
    assert node.ssh("sudo --non-interactive id --user", user="eve").returncode != 0


def test_a_second_apply_changes_nothing(node: Node, stand: Stand, accounts: Accounts) -> None:
    """What is as it should be is left alone."""
    assert deployed(stand, node.name, People(accounts)) == []


def test_what_was_changed_by_hand_is_told_and_changed_back(node: Node, stand: Stand, accounts: Accounts) -> None:
    """A password, another's key and the system's groups, each as what it is; root's opens nothing any more."""
    node.run("printf 'eve:open sesame\\nroot:open sesame\\n' | chpasswd; usermod --append --groups sudo eve")
    roots = node.run("grep ^root: /etc/shadow").split(":")[1]
    node.run("echo 'ssh-ed25519 AAAA mallory' >> /etc/ssh/authorized_keys.d/eve")

    changed = deployed(stand, node.name, People(accounts))

    assert changed == [
        "Write keys of eve",
        "Update account eve",
        "Lock the password of root",
        "Remove eve from sudo",
    ]
    assert "eve:*:" in node.run("grep ^eve: /etc/shadow")
    assert f"root:!{roots}:" in node.run("grep ^root: /etc/shadow")


def test_an_id_that_is_somebody_elses_is_refused_in_words(stand: Stand, node: Node, accounts: Accounts) -> None:
    """Before anything is changed."""
    taken = replace(accounts, people=(*accounts.people, Account("new", 1000, admin=False, keys=())))

    with pytest.raises(CommandError, match="id 1000 belongs to account ubuntu on the node, but to new in the fleet"):
        deployed(stand, node.name, People(taken))


def test_who_leaves_is_out_at_once_and_keeps_their_files(
    stand: Stand, node: Node, accounts: Accounts, without_eve: Accounts
) -> None:
    """No key, no group, no process; whoever comes back has id and files."""
    node.ssh("echo mine > file; nohup sleep 900 > /dev/null 2>&1 & sleep 0.2", user="eve")

    left = deployed(stand, node.name, People(without_eve))
    again = deployed(stand, node.name, People(without_eve))
    refused = node.ssh("true", user="eve")
    running = node.run("stat --format=%u /proc/[0-9]* 2>/dev/null | grep -c 20001 || true")
    back = deployed(stand, node.name, People(accounts))

    assert left == [
        "Remove keys of eve",
        "Lock account eve",
        "Set members of vision",
        "Remove eve from speech",
        "End all processes of eve",
    ]
    assert again == []
    assert "Permission denied" in refused.stderr
    assert running.strip() == "0"
    assert back == ["Write keys of eve", "Update account eve", "Set members of vision", "Set members of speech"]
    assert node.ssh("cat file; id --user", user="eve").stdout.split() == ["mine", "20001"]
