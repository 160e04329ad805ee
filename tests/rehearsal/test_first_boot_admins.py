"""Who may log in to a machine that has just started: the fleet's administrators, as the roles will have them."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from bedplate.errors import InputError
from bedplate.plan.accounts import NO_ACCOUNTS, Account, Accounts
from bedplate.rehearsal.simulation import Simulation
from roles.people.role import SUDOERS
from roles.people.standing import KEYS
from stacks.first_boot import first_boot
from stacks.parameters import administrators
from tests.support.boot_place import LAB, POOL, Place, boot_place
from tests.support.node import Node

SCRIPT = first_boot(LAB, POOL)
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl"
OTHER = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJp0bDmcH2ZKkXlPGrRCxKqFZbZ2G6jvYlUFfEyH0Bqw"
PEOPLE = Accounts(
    (
        Account("ada", 20000, admin=True, keys=(f"{KEY} ada@laptop, the one at home", OTHER)),
        Account("grace", 20001, admin=False, keys=(OTHER,)),
        Account("edsger", 20002, admin=True, keys=(KEY,)),
    )
)


@pytest.fixture
def place(simulation: Simulation, tmp_path: Path) -> Iterator[Place]:
    """Give a fleet of no machines, whose administrators are ada and edsger."""
    with boot_place(simulation.region("us-west-2"), tmp_path) as opened:
        opened.tell("admins", administrators(PEOPLE))
        yield opened


def _text(machine: Node, path: str) -> str:
    return (machine.root / path.removeprefix("/")).read_text()


def test_administrators_log_in_and_become_root(place: Place) -> None:
    """Accounts, keys and rights lie where the roles keep them, which go on from there and let go whoever leaves."""
    machine = place.machine()

    status, log = machine.boot(SCRIPT)

    assert status == 0, log
    # In this folder no account ever comes about, so that the second key asks for ada's again.
    made = list(dict.fromkeys(call for call in machine.noted if call.startswith(("groupadd", "useradd"))))
    assert [call.split()[-1] for call in made] == ["ada", "ada", "edsger", "edsger"]
    assert "useradd --uid 20000 --gid 20000 --home-dir /home/ada --no-create-home" in made[1]
    assert _text(machine, f"{KEYS}/ada").splitlines() == [KEY, OTHER]
    assert _text(machine, f"{KEYS}/edsger").splitlines() == [KEY]
    rights = [line for line in _text(machine, SUDOERS).splitlines() if line]
    assert rights == [f"{name} ALL=(ALL:ALL) NOPASSWD: ALL" for name in ("ada", "edsger")]
    assert "systemctl try-reload-or-restart ssh.service" in machine.noted


def test_nobody_else_is_let_in(place: Place) -> None:
    """Grace has an account once a role has made it, and no rights by then either."""
    machine = place.machine()

    machine.boot(SCRIPT)

    assert sorted(file.name for file in (machine.root / KEYS.removeprefix("/")).iterdir()) == ["ada", "edsger"]
    assert "grace" not in _text(machine, SUDOERS)


def test_a_second_run_changes_nothing(place: Place) -> None:
    """Keys are not written twice, and settings that are there stay."""
    machine = place.machine()
    machine.boot(SCRIPT)
    drop_in = machine.root / "etc/ssh/sshd_config.d/00-bedplate.conf"
    first = drop_in.read_text()
    drop_in.write_text("# as the roles have it\n")

    status, log = machine.boot(SCRIPT)

    assert status == 0, log
    assert first == f"AuthorizedKeysFile .ssh/authorized_keys {KEYS}/%u\n"
    assert drop_in.read_text() == "# as the roles have it\n"
    assert _text(machine, f"{KEYS}/ada").splitlines() == [KEY, OTHER]


def test_a_fleet_without_administrators_lets_nobody_in(place: Place) -> None:
    """The machine starts all the same: sessions of Systems Manager are another way."""
    place.tell("admins", administrators(NO_ACCOUNTS))
    machine = place.machine()

    status, log = machine.boot(SCRIPT)

    assert status == 0, log
    assert not (machine.root / SUDOERS.removeprefix("/")).exists()
    assert not [call for call in machine.noted if call.startswith("useradd")]


def test_a_machine_that_nobody_could_configure_is_given_up(place: Place) -> None:
    """Not to be told who administers it is a fault, which its group mends by another machine."""
    place.door.deaf.add("AmazonSSM.GetParameter")
    machine = place.machine()

    status, log = machine.boot(first_boot(LAB, next(pool for pool in LAB.pools if pool.use.value == "kubernetes")))

    assert status == 1
    assert "nobody tells who the administrators are" in log
    assert place.reports[-1][2] == "ABANDON"


def test_more_keys_than_a_parameter_takes_are_refused() -> None:
    """Before AWS does, and with what to change."""
    crowd = Accounts(tuple(replace(PEOPLE.people[0], name=f"ada{number}") for number in range(30)))

    with pytest.raises(InputError, match="a parameter takes 4,096") as refused:
        administrators(crowd)

    assert "Ed25519" in refused.value.fix
