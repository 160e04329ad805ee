"""A boot whose packet filter cannot be loaded: the node is shut, and whoever mends it comes in."""

from collections.abc import Iterator

import pytest

from bedplate.plan.firewall import Rule
from roles.hardened import firewall
from roles.hardened.firewall import ruleset
from roles.hardened.logins import CONFIRM, SCRIPT
from tests.testlab.machines.gateways import HIDDEN, LAN, answers, guarded, want
from tests.testlab.machines.stand import Node, Stand
from tests.testlab.network.netlab import until

DOOR = Rule("hidden", "hidden", LAN.block, "tcp", HIDDEN)
FILTER, UNIT = "/etc/bedplate/filter.nft", "/etc/systemd/system/hidden.service"
# As long as it stands, a service is asked by whomever the filter lets in.
SERVICE = f"""[Service]
ExecStartPre=install -d -m 755 /run/sshd
ExecStart=/usr/sbin/sshd -D -p {HIDDEN} -o PidFile=none
[Install]
WantedBy=multi-user.target
"""


@pytest.fixture(scope="module")
def node(stand: Stand) -> Node:
    """Give a machine that has a service beside SSH, with a door for it."""
    node = guarded(stand)
    (node.root / UNIT.removeprefix("/")).write_text(SERVICE)
    want(node, ruleset((LAN, DOOR), frozenset()))
    node.run(f"systemctl enable --now hidden; {SCRIPT} begin 60 && {CONFIRM}")
    return node


@pytest.fixture
def whole(node: Node) -> Iterator[Node]:
    """Give the machine, and make it whole again."""
    node.run(f"install -d /root/kept; cp {FILTER} {SCRIPT} /root/kept")
    yield node
    node.run(f"cp /root/kept/filter.nft {FILTER}; cp /root/kept/bedplate-trial {SCRIPT}")
    node.run(f"cp {FILTER} /etc/bedplate/wanted/; systemctl reset-failed; systemctl restart bedplate-filter")


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        pytest.param(f"echo 'table inet bedplate {{ chain' > {FILTER}", True, id="no ruleset"),
        pytest.param(f": > {FILTER}", True, id="an empty file"),
        pytest.param(f"rm {FILTER} /etc/bedplate/wanted/filter.nft", True, id="no file"),
        pytest.param(f": > {SCRIPT}", False, id="an empty program"),
        pytest.param("systemctl mask bedplate-filter", False, id="a unit that is masked"),
    ],
)
def test_a_node_whose_filter_does_not_load_is_shut(whole: Node, damage: str, says: bool) -> None:  # noqa: FBT001  a case
    """Nobody comes to what the filter had a door for, and an administrator comes in by SSH and reads why."""
    mask = "/etc/systemd/system/bedplate-filter.service"
    # `systemctl mask` refuses where a file of that name lies.
    whole.run(f"cp {mask} /root/kept; {damage.replace('systemctl mask bedplate-filter', f'ln -sf /dev/null {mask}')}")
    open_before, now = answers(whole, HIDDEN), whole.run("date +%s").strip()

    whole.restart()
    until(lambda: whole.ssh("true").returncode == 0, 60, "an administrator comes in")
    shut = whole.run("nft list table inet bedplate")
    greeting = whole.ssh("cat /run/motd.d/bedplate-filter").stdout
    told = whole.run(f"journalctl --since=@{now} --priority=emerg --unit=bedplate-filter --output=cat")
    reached = answers(whole, HIDDEN)
    whole.run(f"rm -f {mask}; cp /root/kept/bedplate-filter.service {mask}; systemctl daemon-reload")

    assert open_before
    assert not reached
    assert "chain emergency" in shut
    assert whole.run("systemctl is-active hidden").strip() == "active"
    assert ("only SSH" in greeting, "only SSH" in told) == (says, says)


def test_a_whole_filter_takes_its_place(whole: Node) -> None:
    """The good twin: after a boot with a filter that loads, nothing of the emergency is left."""
    whole.restart()

    until(lambda: answers(whole, HIDDEN), 60, "the service answers")
    assert "emergency" not in whole.run("nft list table inet bedplate; ls -A /run/motd.d 2>/dev/null || true")


def test_what_is_loaded_is_never_taken_off_for_the_emergency(whole: Node) -> None:
    """A unit that is started along with another on a node that runs, and its ruleset by hand, leave the filter be."""
    before = whole.run("nft list table inet bedplate")

    whole.run(f"systemctl restart {firewall.UNIT}; nft -f {firewall.PATH} 2>&1 || true")

    assert whole.run("nft list table inet bedplate") == before


def test_an_apply_mends_a_node_that_is_shut(whole: Node) -> None:
    """What is wanted is tried and confirmed as ever, and the greeting is gone with the emergency."""
    whole.run(f": > {FILTER}")
    whole.restart()

    whole.run(f"{SCRIPT} begin 60 && {CONFIRM}")

    assert answers(whole, HIDDEN)
    assert "emergency" not in whole.run("nft list table inet bedplate; ls -A /run/motd.d")
