"""The role `hardened`, on a node in memory."""

import hashlib
import subprocess
import sys
from ipaddress import IPv4Network
from pathlib import Path

import pytest

from bedplate.plan.door import Rule
from roles.hardened.role import Hardened
from roles.hardened.shipped import text_of
from roles.hardened.trial import CONFIRM, SCRIPT
from tests.support.disk import Disk
from tests.support.recorded import Recorded, recorded
from tests.support.recorder import Recorder

SSH = Rule("ssh-from-cellar", "SSH from the cellar", IPv4Network("192.168.40.0/22"), "tcp", 22)
ROLE = Hardened(doors=(SSH,), duties=frozenset())
TABLES = [recorded("debian-12"), recorded("ubuntu-24.04")]
ON_TRIAL = "Packet filter and sshd, on trial"


def answers(table: Recorded, disk: Disk, in_force: str) -> Recorded:
    """Return a table that knows what lies on a disk, and whether what is wanted is in force."""
    prints = [
        line
        for path, entry in disk.entries.items()
        if entry.kind == "file"
        for line in (
            f"{path} {entry.mode} {entry.user}:{entry.group}",
            f"{hashlib.sha256(entry.content.encode()).hexdigest()}  {path}",
        )
    ]
    return table.but({"roles.hardened.shipped.Prints": tuple(prints), "roles.hardened.trial.InForce": (in_force,)})


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_the_bake_of_an_image_tries_nothing(table: Recorded) -> None:
    """Without a running system, files are written and nothing is put in force."""
    played = Recorder(answers(table, Disk.of({}), "differs")).play(ROLE, stages=["install", "configure"])

    assert ON_TRIAL not in played.names
    assert not [line for line in played.commands if "systemctl" in line]


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_what_is_wanted_is_written_and_tried(table: Recorded) -> None:
    """The texts lie where the trial finds them, readable by root alone, and the trial begins after them."""
    played = Recorder(answers(table, Disk.of({}), "differs")).play(ROLE)

    assert played.disk.entries["/etc/bedplate/wanted/filter.nft"].mode == 600
    assert "192.168.40.0/22" in played.written("/etc/bedplate/wanted/filter.nft")
    assert played.names[-1] == ON_TRIAL
    assert played.step(ON_TRIAL).commands == (f"{SCRIPT} begin 120",)


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_a_second_run_changes_nothing(table: Recorded) -> None:
    """What is in place and in force is left alone."""
    disk = Recorder(answers(table, Disk.of({}), "differs")).play(ROLE).disk

    again = Recorder(answers(table, disk, "in force"), disk).play(ROLE, stages=["configure", "activate"])

    assert again.changes == []


def test_what_was_changed_by_hand_is_tried_again() -> None:
    """A rule that somebody added to the loaded table, and a trial that was never confirmed, are drift."""
    disk = Recorder(answers(TABLES[0], Disk.of({}), "differs")).play(ROLE).disk

    again = Recorder(answers(TABLES[0], disk, "differs"), disk).play(ROLE, stages=["configure", "activate"])

    assert again.changes == [ON_TRIAL]


def test_shellcheck_finds_nothing_in_the_trial() -> None:
    """The program that goes back must not fail for a slip of the shell."""
    told = subprocess.run(
        [str(Path(sys.executable).parent / "shellcheck"), "-"],
        input=text_of("bedplate-trial"),
        capture_output=True,
        text=True,
        check=False,
    )

    assert told.stdout == ""


def test_the_confirmation_is_the_program_that_the_role_ships() -> None:
    """Whoever applies confirms by the same program that would go back."""
    assert f"{SCRIPT} confirm" == CONFIRM
