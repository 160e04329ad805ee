"""Keys and rights of administrators on trial, on a node in memory."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from roles.people.role import SUDOERS, People
from roles.people.trial import KEPT
from roles.template import text_of
from tests.support.crowd import ACCOUNTS, FRESH, answering, played
from tests.support.disk import Disk, Entry
from tests.support.fleets import ADA
from tests.support.recorded import Recorded
from tests.support.recorder import Recorder

KEYS_ON_TRIAL = "Ways of administrators, on trial"


def test_administrators_ways_are_tried_before_anybody_is_locked_out(system: Recorded) -> None:
    """What was there is kept, all is written, somebody comes in anew, and only then who left goes."""
    names = played(system, (*FRESH, "login:eve:x:20002:20002::/home/eve:/bin/bash", "lock:eve:*:")).names

    order = ["Former ways of administrators", "Keys of ada", "Administrators", KEYS_ON_TRIAL, "eve is locked out"]
    assert [name for name in names if name in order] == order


def test_a_person_without_rights_is_no_trial(system: Recorded) -> None:
    """Nobody applies as them: their key, their coming and their going keep no administrator waiting."""
    disk = played(system).disk
    disk.write(SUDOERS, Entry(content=disk.read("/etc/bedplate/sudoers"), mode=440))
    others = replace(ACCOUNTS, people=(ACCOUNTS.people[0], replace(ACCOUNTS.people[1], keys=(ADA,))))

    again = Recorder(answering(system, FRESH), disk).play(People(others), stages=("configure",))

    assert "Keys of bob" in again.changes
    assert KEYS_ON_TRIAL not in again.names


def test_a_trial_that_was_cut_off_is_ended_by_the_next_apply(system: Recorded) -> None:
    """All is written and nobody has come in by it: alone, the node would go back after an apply that ended fine."""
    disk = played(system).disk
    disk.write(SUDOERS, Entry(content=disk.read("/etc/bedplate/sudoers"), mode=440))
    kept = Disk.of({KEPT: "/etc/sudoers.d/bedplate\n"}).entries[KEPT]

    settled = Recorder(answering(system, FRESH), disk).play(People(ACCOUNTS), stages=("configure",))
    disk.write(KEPT, kept)
    cut = Recorder(answering(system, FRESH), disk).play(People(ACCOUNTS), stages=("configure",))

    assert KEYS_ON_TRIAL not in settled.names
    assert [name for name in cut.names if name in ("Former ways of administrators", KEYS_ON_TRIAL)] == [
        "Former ways of administrators",
        KEYS_ON_TRIAL,
    ]


def test_shellcheck_finds_nothing_in_the_trial_of_keys() -> None:
    """The program that goes back must not fail for a slip of the shell."""
    shellcheck = str(Path(sys.executable).with_name("shellcheck"))
    text = text_of("people/bedplate-trial-people")

    done = subprocess.run([shellcheck, "-"], input=text, capture_output=True, text=True, check=False)

    assert done.stdout == ""
