"""Who counts as a stranger among a node's accounts, by the tables of both distributions."""

import pytest

from roles.hardened.sshd import IMAGE_ACCOUNTS
from tests.compliance.accounts import strangers
from tests.support.recorded import Recorded

OWN = {"root", *IMAGE_ACCOUNTS}


def _rows(system: Recorded) -> list[list[str]]:
    return [line.partition("|")[0].split(":") for line in system.answers["server.Users"] or ()]


def test_what_a_distribution_brings_is_no_stranger(system: Recorded) -> None:
    """Nobody is told of accounts that every machine has."""
    assert len(_rows(system)) > 15
    assert strangers(_rows(system), OWN) == []


@pytest.mark.parametrize(
    "row",
    [
        "toor:x:0:0::/root:/usr/sbin/nologin",
        "games:x:5:60:games:/usr/games:/bin/bash",
        "games:x:5:60:games:/usr/games:",
        "guest:x:1500:1500::/home/guest:/usr/sbin/nologin",
        "mole:x:70000:70000::/var/mole:/bin/false",
    ],
    ids=["root's number", "shell", "default shell", "person's number", "large number"],
)
def test_a_stranger_is_found_among_them(row: str, system: Recorded) -> None:
    """By what makes somebody of an account: a shell, a number above daemons', or root's."""
    name = row.partition(":")[0]
    rows = [each for each in _rows(system) if each[0] != name]

    assert strangers([*rows, row.split(":")], OWN) == [name]


def test_whoever_the_fleet_names_is_none(system: Recorded) -> None:
    """People of the file, and former ones, whose names stay."""
    assert (
        strangers([*_rows(system), ["ada", "x", "20000", "20000", "", "/home/ada", "/bin/bash"]], {*OWN, "ada"}) == []
    )
