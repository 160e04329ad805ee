"""Boots whose packet filter cannot be loaded: the emergency filter allows only SSH, for the repair."""

from collections.abc import Iterator

import pytest

from bedplate.plan.firewall import FirewallRule
from roles.hardened import firewall
from roles.hardened.firewall import ruleset
from roles.hardened.logins import CONFIRM, SCRIPT
from tests.testlab.machines.gateways import HIDDEN, LAN, boot_with_filter, port_answers, write_wanted
from tests.testlab.machines.node_lab import Node, NodeLab
from tests.testlab.network.netlab import until

SERVICE_RULE = FirewallRule("hidden", "hidden", LAN.block, "tcp", HIDDEN)
FILTER, UNIT = "/etc/bedplate/filter.nft", "/etc/systemd/system/hidden.service"
# A second sshd on another port simulates a service behind the filter.
SERVICE = f"""[Service]
ExecStartPre=install -d -m 755 /run/sshd
ExecStart=/usr/sbin/sshd -D -p {HIDDEN} -o PidFile=none
[Install]
WantedBy=multi-user.target
"""


@pytest.fixture(scope="module")
def node(node_lab: NodeLab) -> Node:
    """Return a node with a second service, which a firewall rule opens."""
    node = boot_with_filter(node_lab)
    (node.root / UNIT.removeprefix("/")).write_text(SERVICE)
    write_wanted(node, ruleset((LAN, SERVICE_RULE), frozenset()))
    node.run(f"systemctl enable --now hidden; {SCRIPT} begin 60 && {CONFIRM}")
    return node


@pytest.fixture
def whole(node: Node) -> Iterator[Node]:
    """Yield the node, and restore its filter afterwards."""
    node.run(f"install -d /root/kept; cp {FILTER} {SCRIPT} /root/kept")
    yield node
    node.run(f"cp /root/kept/filter.nft {FILTER}; cp /root/kept/bedplate-trial {SCRIPT}")
    node.run(f"cp {FILTER} /etc/bedplate/wanted/; systemctl reset-failed; systemctl restart bedplate-filter")


@pytest.mark.parametrize(
    ("damage", "is_logged"),
    [
        pytest.param(f"echo 'table inet bedplate {{ chain' > {FILTER}", True, id="no ruleset"),
        pytest.param(f": > {FILTER}", True, id="an empty file"),
        pytest.param(f"rm {FILTER} /etc/bedplate/wanted/filter.nft", True, id="no file"),
        pytest.param(f": > {SCRIPT}", False, id="an empty program"),
        pytest.param("systemctl mask bedplate-filter", False, id="a unit that is masked"),
    ],
)
def test_emergency_filter_loads_if_the_filter_fails(whole: Node, damage: str, is_logged: bool) -> None:  # noqa: FBT001  a case
    """If the packet filter cannot be loaded at boot, only SSH is reachable, and the login message states the reason."""
    mask = "/etc/systemd/system/bedplate-filter.service"
    # `systemctl mask` fails if a file of that name exists.
    whole.run(f"cp {mask} /root/kept; {damage.replace('systemctl mask bedplate-filter', f'ln -sf /dev/null {mask}')}")
    was_open, now = port_answers(whole, HIDDEN), whole.run("date +%s").strip()

    whole.restart()
    until(lambda: whole.ssh("true").returncode == 0, 60, "an administrator cannot log in")
    rules = whole.run("nft list table inet bedplate")
    greeting = whole.ssh("cat /run/motd.d/bedplate-filter").stdout
    log = whole.run(f"journalctl --since=@{now} --priority=emerg --unit=bedplate-filter --output=cat")
    reached = port_answers(whole, HIDDEN)
    whole.run(f"rm -f {mask}; cp /root/kept/bedplate-filter.service {mask}; systemctl daemon-reload")

    assert was_open
    assert not reached
    assert "chain emergency" in rules
    assert whole.run("systemctl is-active hidden").strip() == "active"
    assert ("only SSH" in greeting, "only SSH" in log) == (is_logged, is_logged)


def test_valid_filter_replaces_the_emergency_filter(whole: Node) -> None:
    """After a boot with a valid filter, the emergency filter is not active."""
    whole.restart()

    until(lambda: port_answers(whole, HIDDEN), 60, "the service does not answer")
    assert "emergency" not in whole.run("nft list table inet bedplate; ls -A /run/motd.d 2>/dev/null || true")


def test_emergency_filter_never_replaces_a_loaded_filter(whole: Node) -> None:
    """A manual start of the emergency unit, or its ruleset, does not change a loaded filter."""
    before = whole.run("nft list table inet bedplate")

    whole.run(f"systemctl restart {firewall.UNIT}; nft -f {firewall.PATH} 2>&1 || true")

    assert whole.run("nft list table inet bedplate") == before


def test_apply_replaces_the_emergency_filter(whole: Node) -> None:
    """An apply replaces the emergency filter, and the login message disappears."""
    whole.run(f": > {FILTER}")
    whole.restart()

    whole.run(f"{SCRIPT} begin 60 && {CONFIRM}")

    assert port_answers(whole, HIDDEN)
    assert "emergency" not in whole.run("nft list table inet bedplate; ls -A /run/motd.d")
