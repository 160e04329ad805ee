"""Four machines of a room, from fresh images to what the fleet file says: applied, looked at, changed."""

import re
from collections.abc import Mapping
from typing import Any

import pytest

from tests.testlab.machines.lab import MACHINES, Lab, Parting

LAPTOPS = """vpn:
  laptops:
    gateways: [{region: us-west-2}]
    pool: /22
"""


@pytest.mark.parametrize("name", MACHINES)
def test_a_fresh_machine_becomes_what_the_file_says(name: str, lab: Lab) -> None:
    """A workbench, a worker, a gateway and a file server are each applied over SSH, to the end."""
    assert lab.first[name]


def test_a_second_apply_changes_nothing(lab: Lab) -> None:
    """What is as it should be is left alone."""
    assert lab.operator.changes(*lab.nodes) == {name: [] for name in lab.nodes}


def test_the_audit_agrees_with_the_apply(lab: Lab) -> None:
    """No rule is violated on any of them; people who wrote neither can say so."""
    assert violations(lab.operator.findings(*lab.nodes)) == []


def test_a_look_shows_exactly_who_leaves(parting: Parting) -> None:
    """On each machine something is to be changed, and nothing that is not cora's: of scratch she has a row."""
    assert set(parting.told) == set(MACHINES)
    assert all(parting.told.values())
    assert {name for names in parting.told.values() for name in names if "cora" not in name} == {
        "Write the table of /scratch"
    }


def test_who_leaves_is_let_go_everywhere(parting: Parting, lab: Lab) -> None:
    """The apply does what the look told, the audit agrees, and their key opens nothing."""
    assert parting.done == parting.told
    assert violations(parting.found) == []
    assert lab.nodes["titan-03.cellar"].ssh("true", user="cora").returncode == 255


def test_who_stays_logs_in_by_their_name(parting: Parting, lab: Lab) -> None:
    """The same key opens ada's account and not cora's, and ada alone becomes root."""
    node = lab.nodes["titan-03.cellar"]

    assert node.ssh("sudo -n id -u", user="ada").stdout.strip() == "0"
    assert node.ssh("id -u", user="grace").stdout.strip() == "20001"
    assert node.ssh("sudo -n id -u", user="grace").returncode == 1


@pytest.mark.parametrize(
    ("old", "new", "about"),
    [
        pytest.param("mount: /data}", "mount: /sets}", r"/data|/sets|sets\.|of mounts$|of storage$", id="mount"),
        pytest.param(LAPTOPS, "", r"[Ff]ilter|trial", id="port"),
    ],
)
def test_a_change_is_shown_made_and_seen(old: str, new: str, about: str, lab: Lab, parting: Parting) -> None:
    """A mount renamed, a port closed: a look shows that and nothing else, the apply does it, the audit agrees."""
    names = ("titan-03.cellar", "nas.cellar")

    with lab.edited(old, new, *names):
        told = lab.operator.changes("--check", *names)
        before = violations(lab.operator.findings(*names))
        done = lab.operator.changes(*names)
        after = violations(lab.operator.findings(*names))

    assert done == told
    assert all(told.values())
    assert [name for each in told.values() for name in each if not re.search(about, name)] == []
    assert before
    assert after == []


def violations(document: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Return each violated rule with its machine and what was seen; a machine that was not reached is one, too."""
    lost = [(node["node"], "is-reached", node["unreached"]) for node in document["nodes"] if node["unreached"]]
    return lost + [
        (node["node"], verdict["rule"], verdict["words"])
        for node in document["nodes"]
        for verdict in node["verdicts"]
        if verdict["outcome"] == "violated"
    ]
