"""Four nodes of a site, from fresh images to the state of the fleet file: applied, audited, changed."""

import re
from collections.abc import Mapping
from typing import Any

import pytest

from tests.testlab.machines.lab import LAB_NODES, Departure, Lab

LAPTOPS = """vpn:
  laptops:
    gateways: [{region: us-west-2}]
    pool: /22
"""


@pytest.mark.parametrize("name", LAB_NODES)
def test_fresh_node_is_applied(name: str, lab: Lab) -> None:
    """A workbench, a worker, a gateway and a file server are applied over SSH."""
    assert lab.first[name]


def test_a_second_apply_changes_nothing(lab: Lab) -> None:
    """A second apply changes nothing on any node."""
    assert lab.operator.changes(*lab.nodes) == {name: [] for name in lab.nodes}


def test_audit_finds_no_violation_after_an_apply(lab: Lab) -> None:
    """After an apply, the audit finds no failure on any node."""
    assert failures(lab.operator.findings(*lab.nodes)) == []


def test_check_shows_the_removal_of_a_person(departure: Departure) -> None:
    """`--check` shows changes for the removed person where people log in, and no others but scratch and run folders.

    On the other nodes the account was locked and had no key before.
    """
    assert set(departure.checked) == set(LAB_NODES)
    assert [name for name, changes in departure.checked.items() if changes] == ["titan-03.cellar"]
    assert {name for names in departure.checked.values() for name in names if "cora" not in name} == {
        "Write the table of /scratch",
        "Write the folders of runs",
        "Create the folders of runs",
    }


def test_removed_person_loses_access_everywhere(departure: Departure, lab: Lab) -> None:
    """The apply makes the checked changes, the audit finds no failure, and the person's key no longer works."""
    assert departure.applied == departure.checked
    assert failures(departure.findings) == []
    assert lab.nodes["titan-03.cellar"].ssh("true", user="cora").returncode == 255


def test_people_log_in_with_their_accounts(departure: Departure, lab: Lab) -> None:
    """People log in with their own accounts, and only the administrator has sudo."""
    node = lab.nodes["titan-03.cellar"]

    assert node.ssh("sudo -n id -u", user="ada").stdout.strip() == "0"
    assert node.ssh("id -u", user="grace").stdout.strip() == "20001"
    assert node.ssh("sudo -n id -u", user="grace").returncode == 1


@pytest.mark.parametrize(
    ("old", "new", "about"),
    [
        pytest.param(
            "mount: /data}",
            "mount: /sets}",
            r"/data|/sets|sets\.|of mounts$|(of|for) storage$|must have$|gate$|metrics|^Check the mach|^Reload sys",
            id="mount",
        ),
        pytest.param(LAPTOPS, "", r"[Ff]ilter|[Ff]irewall|confirm", id="port", marks=pytest.mark.nightly),
    ],
)
def test_change_is_checked_applied_and_audited(old: str, new: str, about: str, lab: Lab, departure: Departure) -> None:
    """`--check` shows a changed mount or port and nothing else, the apply makes it, and the audit agrees."""
    names = ("titan-03.cellar", "nas.cellar")

    with lab.edited(old, new, *names):
        checked = lab.operator.changes("--check", *names)
        before = failures(lab.operator.findings(*names))
        applied = lab.operator.changes(*names)
        after = failures(lab.operator.findings(*names))

    assert applied == checked
    assert all(checked.values())
    assert [name for changes in checked.values() for name in changes if not re.search(about, name)] == []
    assert before
    assert after == []


def failures(document: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Return node, rule and text of each failure; an unreached node counts as a failure."""
    unreached = [(node["node"], "is-reached", node["unreached"]) for node in document["nodes"] if node["unreached"]]
    return unreached + [
        (node["node"], verdict["rule"], verdict["words"])
        for node in document["nodes"]
        for verdict in node["verdicts"]
        if verdict["outcome"] == "failed"
    ]
