"""The role `people` on a booted node: new accounts, sudo, manual changes, and former people."""

from dataclasses import replace

import pytest

from bedplate.plan.fleet import Account, Accounts
from roles.people.role import People
from tests.testlab.machines.container import CommandError
from tests.testlab.machines.node_lab import Node, NodeLab
from tests.testlab.machines.operator import apply_roles
from tests.testlab.machines.workstation import make_key
from tests.testlab.run import need_program

pytestmark = pytest.mark.nightly

NAME = "titan-01.cellar"
# The same setting as in the role `hardened`; this node has only the role `people`.
READS_KEYS = "printf 'AuthorizedKeysFile /etc/ssh/authorized_keys.d/%%u .ssh/authorized_keys\\n'"


@pytest.fixture(scope="module")
def accounts(node_lab: NodeLab) -> Accounts:
    """Return two people who have the operator's key."""
    key = (node_lab.folder / "operator.pub").read_text().strip()
    other = make_key(node_lab.folder / "eve", "eve")
    people = (
        Account("ada", 20000, admin=True, keys=(key,), groups=("vision",)),
        Account("eve", 20001, admin=False, keys=(key, other), groups=("vision", "speech")),
    )
    return Accounts(people, {"vision": 50000, "speech": 50001})


@pytest.fixture(scope="module")
def without_eve(accounts: Accounts) -> Accounts:
    """Return the accounts after eve left."""
    return Accounts(accounts.people[:1], {"vision": 50000}, {"eve": 20001}, {"speech": 50001})


@pytest.fixture(scope="module")
def node(node_lab: NodeLab, accounts: Accounts) -> Node:
    """Return a node with both accounts."""
    need_program("ssh")
    booted = node_lab.boot(NAME, "192.168.40.21")
    booted.run(f"{READS_KEYS} > /etc/ssh/sshd_config.d/keys.conf; systemctl restart ssh")
    apply_roles(node_lab, NAME, People(accounts))
    return booted


def test_people_log_in_with_keys_and_get_a_home(node: Node) -> None:
    """People log in with their keys; the first login creates a private home, and the ID is the fleet's."""
    done = node.ssh("id --user; id --groups --name; pwd; stat --format=%a .", user="ada")

    assert done.stdout.splitlines() == ["20000", "ada vision", "/home/ada", "700"], done.stderr


def test_only_administrators_have_sudo(node: Node) -> None:
    """Administrators have sudo without a password, and others have no sudo."""
    assert node.ssh("sudo --non-interactive id --user", user="ada").stdout.strip() == "0"
    assert node.ssh("sudo --non-interactive id --user", user="eve").returncode != 0


def test_a_second_apply_changes_nothing(node: Node, node_lab: NodeLab, accounts: Accounts) -> None:
    """A second apply changes nothing."""
    assert apply_roles(node_lab, node.name, People(accounts)) == []


def test_manual_changes_are_reverted(node: Node, node_lab: NodeLab, accounts: Accounts) -> None:
    """A password, a foreign key and a system group are each reported and reverted, and root's password is locked."""
    node.run("printf 'eve:open sesame\\nroot:open sesame\\n' | chpasswd; usermod --append --groups sudo eve")
    root_hash = node.run("grep ^root: /etc/shadow").split(":")[1]
    node.run("echo 'ssh-ed25519 AAAA mallory' >> /etc/ssh/authorized_keys.d/eve")

    changed = apply_roles(node_lab, node.name, People(accounts))

    assert changed == ["Write keys of eve", "Update account eve", "Lock the password of root", "Remove eve from sudo"]
    assert "eve:*:" in node.run("grep ^eve: /etc/shadow")
    assert f"root:!{root_hash}:" in node.run("grep ^root: /etc/shadow")


def test_id_of_another_account_is_refused(node_lab: NodeLab, node: Node, accounts: Accounts) -> None:
    """An ID that another account has is refused before any change."""
    taken = replace(accounts, people=(*accounts.people, Account("new", 1000, admin=False, keys=())))

    with pytest.raises(CommandError, match="id 1000 belongs to account ubuntu on the node, but to new in the fleet"):
        apply_roles(node_lab, node.name, People(taken))


def test_former_person_loses_access_and_keeps_files(
    node_lab: NodeLab, node: Node, accounts: Accounts, without_eve: Accounts
) -> None:
    """A former person has no key, group or process; if they return, they have the same ID and files."""
    node.ssh("echo mine > file; nohup sleep 900 > /dev/null 2>&1 & sleep 0.2", user="eve")

    left = apply_roles(node_lab, node.name, People(without_eve))
    again = apply_roles(node_lab, node.name, People(without_eve))
    refused = node.ssh("true", user="eve")
    running = node.run("stat --format=%u /proc/[0-9]* 2>/dev/null | grep -c 20001 || true")
    back = apply_roles(node_lab, node.name, People(accounts))

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
