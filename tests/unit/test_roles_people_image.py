"""What becomes of the accounts that a machine's image came with."""

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from roles.people.image import image_endings, key_files, shuttings
from roles.people.standing import Accounted, Group, Login, Standing

FILE = "/home/ubuntu/.ssh/authorized_keys"
OPEN = Login("ubuntu", 1000, 1000, "/home/ubuntu", "/bin/bash", "!")
OPEN_ADMIN = Login("admin", 1001, 1001, "/home/admin", "/bin/bash", "$")
CLOUD = Standing(
    {"ubuntu": OPEN},
    {"ubuntu": Group("ubuntu", 1000), "sudo": Group("sudo", 27, frozenset({"ubuntu"}))},
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
