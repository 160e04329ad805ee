"""The confirmation window of packet filter and sshd settings, on a node that may lock everyone out."""

import time

import pytest

from bedplate.plan.firewall import FirewallRule
from roles.hardened.firewall import ruleset
from roles.hardened.logins import CONFIRM, SCRIPT
from tests.testlab.machines.container import CommandError
from tests.testlab.machines.gateways import HIDDEN, KEYS_ONLY, LAN, OPEN, boot_with_filter, port_answers, write_wanted
from tests.testlab.machines.node_lab import Node, NodeLab

CLOSED = ruleset((), frozenset())


@pytest.fixture(scope="module")
def node(node_lab: NodeLab) -> Node:
    """Return a node with a confirmed packet filter and sshd settings."""
    return boot_with_filter(node_lab)


def accepts_login(node: Node) -> bool:
    """Return whether a new SSH login succeeds."""
    return node.ssh("true", seconds=30).returncode == 0


@pytest.mark.parametrize(
    ("packets", "sshd"),
    [(CLOSED, KEYS_ONLY), (OPEN, f"AllowUsers nobody\n{KEYS_ONLY}")],
    ids=["filter", "sshd"],
)
def test_unconfirmed_settings_are_reverted(node: Node, packets: str, sshd: str) -> None:
    """Settings that lock everyone out are reverted after the confirmation window; a later confirmation fails."""
    write_wanted(node, packets, sshd)
    node.run(f"{SCRIPT} begin 20")
    was_closed = not accepts_login(node)
    deadline = time.monotonic() + 90
    while not accepts_login(node):
        assert time.monotonic() < deadline
        time.sleep(1)
    late = node.ssh(f"sudo {CONFIRM}")
    write_wanted(node, OPEN)

    assert was_closed
    assert late.returncode == 3
    assert "too late" in late.stderr
    assert "not confirmed" in node.run("journalctl --identifier=bedplate-trial --output=cat")


OPENING = "Match User root\n  PermitRootLogin yes\n  AuthorizedKeysFile .ssh/authorized_keys\n"


def test_other_sshd_files_have_no_effect(node: Node) -> None:
    """Blocks in a drop-in or at the end of sshd_config have no effect; a revert restores the main file."""
    main, drop_in = (node.root / "etc/ssh" / file for file in ("sshd_config", "sshd_config.d/10-x.conf"))
    before = main.read_text()
    opened = before.replace("00-bedplate.conf", "*.conf") + OPENING
    main.write_text(opened)
    drop_in.write_text(OPENING)

    node.run(f"{SCRIPT} begin 60")
    during = node.run("install -d /run/sshd; sshd -T -C user=root,host=x,addr=192.0.2.1")
    node.run(f"{SCRIPT} back")
    reverted = main.read_text()
    main.write_text(before)
    drop_in.unlink()

    assert before.splitlines()[0] == "Include /etc/ssh/sshd_config.d/00-bedplate.conf"
    assert reverted == opened
    assert "permitrootlogin no" in during
    assert "authorizedkeysfile /etc/ssh/authorized_keys.d/%u\n" in during


def test_sshd_answers_during_a_reload(node: Node) -> None:
    """Sshd accepts connections immediately after a change and after a revert."""
    connect = "exec 3<>/dev/tcp/127.0.0.1/22 && exec 3>&-"
    rounds = f"for round in 1 2 3 4 5; do {SCRIPT} begin 60 && {connect} && {SCRIPT} back && {connect} || exit 1; done"

    node.run(f"bash -c '{rounds}'")


def test_confirmed_settings_stay(node: Node) -> None:
    """Confirmed settings stay, and a second confirmation reports that nothing is pending."""
    write_wanted(node, OPEN.replace("192.168.40.0/22", "192.168.40.0/21"))
    node.run(f"{SCRIPT} begin 5")
    first, second = (node.ssh(f"sudo {CONFIRM}") for _ in range(2))
    time.sleep(7)

    assert (first.returncode, second.stdout.strip()) == (0, "nothing to confirm")
    assert "192.168.40.0/21" in node.run("nft list set inet bedplate from_tcp_22")
    assert "bedplate-trial-back" not in node.run("systemctl list-timers --all")


@pytest.mark.parametrize("method", ["restart", "crash"])
def test_reboot_reverts_unconfirmed_settings(node: Node, method: str) -> None:
    """A reboot or power loss during the confirmation window restores the last confirmed settings."""
    write_wanted(node, CLOSED)
    node.run(f"{SCRIPT} begin 600; sync")

    getattr(node, method)()
    write_wanted(node, OPEN)

    assert accepts_login(node)
    assert "192.168.40.0/2" in node.run("nft list table inet bedplate")


@pytest.mark.parametrize(
    ("packets", "sshd"),
    [("table inet bedplate { chain input {", KEYS_ONLY), (OPEN, "PermitRootLogin perhaps\n")],
    ids=["filter", "sshd"],
)
def test_invalid_settings_change_nothing(node: Node, packets: str, sshd: str) -> None:
    """Settings that nft or sshd refuse change nothing."""
    before = node.run("nft list table inet bedplate; install -d /run/sshd; sshd -T")
    write_wanted(node, packets, sshd)

    with pytest.raises(CommandError):
        node.run(f"{SCRIPT} begin 60")
    write_wanted(node, OPEN)

    assert node.run("nft list table inet bedplate; install -d /run/sshd; sshd -T") == before
    assert node.run("ls /var/lib/bedplate").split() == []
    assert accepts_login(node)


def test_other_nftables_tables_stay(node: Node) -> None:
    """Tables of other programs, such as Kubernetes, keep their rules."""
    node.run(
        "nft add table ip theirs; nft add chain ip theirs nat; nft add rule ip theirs nat ip daddr 10.9.9.9 accept"
    )
    write_wanted(node, OPEN)
    node.run(f"{SCRIPT} begin 60 && {CONFIRM}")

    assert "ip daddr 10.9.9.9 accept" in node.run("nft list table ip theirs")


def test_firewall_rule_opens_its_port(node: Node) -> None:
    """A port without a firewall rule is closed, and open with one."""
    with_rule = ruleset((LAN, FirewallRule("hidden", "hidden", LAN.block, "tcp", HIDDEN)), frozenset())
    node.run(f"install -d /run/sshd; systemd-run --quiet --unit=hidden /usr/sbin/sshd -D -p {HIDDEN} -o PidFile=none")

    before = port_answers(node, HIDDEN)
    write_wanted(node, with_rule)
    node.run(f"{SCRIPT} begin 60 && {CONFIRM}")

    assert (before, port_answers(node, HIDDEN)) == (False, True)


def test_open_session_survives_a_new_filter(node: Node) -> None:
    """An open SSH session survives a packet filter that refuses new ones."""
    write_wanted(node, CLOSED)

    session = node.ssh(f"sudo {SCRIPT} begin 5; sleep 2; echo still here; sleep 6; sudo cat /etc/bedplate/filter.nft")
    write_wanted(node, OPEN)

    assert "still here" in session.stdout
    assert "192.168.40.0/2" in session.stdout
