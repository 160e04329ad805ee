"""What an operator is told of a node that cannot be worked on."""

import pytest

from roles.engine.trouble import login_trouble, work_trouble


def test_an_agent_of_many_keys_is_told_how_to_offer_one() -> None:
    """The daemon hangs up before ssh comes to the right key, and says nothing of the reason but this."""
    trouble = login_trouble("titan-01.cellar", "Received disconnect: Too many authentication failures\n")

    assert "--identity FILE" in trouble.fix
    assert "IdentitiesOnly yes" in trouble.fix


@pytest.mark.parametrize(
    "said",
    [
        "E: Release file for http://deb/InRelease is not valid yet (invalid for another 3d 2h).",
        "SSL: certificate is not yet valid",
    ],
    ids=["apt", "tls"],
)
def test_a_clock_that_is_behind_is_named(said: str) -> None:
    """What apt says of it speaks of the archive, which has no fault."""
    assert work_trouble("titan-01.cellar", "Guards", said).what == "Guards: its clock is behind"


def test_a_node_steers_no_terminal() -> None:
    """Of what it says, control signs are shown as question marks."""
    trouble = work_trouble("titan-01.cellar", "Guards", "\x1b]0;owned\x07 it broke\n")

    assert trouble.what == "Guards: ?]0;owned? it broke"
