"""The packet filter and sshd's settings on trial, on a machine that can be locked out."""

import time

import pytest

from bedplate.plan.firewall import Rule
from roles.hardened.firewall import ruleset
from roles.hardened.logins import CONFIRM, SCRIPT
from tests.testlab.machines.container import CommandError
from tests.testlab.machines.gateways import HIDDEN, KEYS_ONLY, LAN, OPEN, answers, guarded, want
from tests.testlab.machines.stand import Node, Stand

SHUT = ruleset((), frozenset())


@pytest.fixture(scope="module")
def node(stand: Stand) -> Node:
    """Give a machine with what the role puts there, in force and confirmed."""
    return guarded(stand)


def lets_us_in(node: Node) -> bool:
    """Tell whether somebody can log in now, over a new connection."""
    return node.ssh("true", seconds=30).returncode == 0


@pytest.mark.parametrize(
    ("packets", "sshd"),
    [(SHUT, KEYS_ONLY), (OPEN, f"AllowUsers nobody\n{KEYS_ONLY}")],
    ids=["filter", "sshd"],
)
def test_what_shuts_everybody_out_goes_back(node: Node, packets: str, sshd: str) -> None:
    """Nobody can confirm it, so that after its time the door is open as before; a confirmation then comes too late."""
    want(node, packets, sshd)
    node.run(f"{SCRIPT} begin 20")
    shut = not lets_us_in(node)
    deadline = time.monotonic() + 90
    while not lets_us_in(node):
        assert time.monotonic() < deadline
        time.sleep(1)
    late = node.ssh(f"sudo {CONFIRM}")
    want(node, OPEN)

    assert shut
    assert late.returncode == 3
    assert "too late" in late.stderr
    assert "not confirmed" in node.run("journalctl --identifier=bedplate-trial --output=cat")


OPENING = "Match User root\n  PermitRootLogin yes\n  AuthorizedKeysFile .ssh/authorized_keys\n"


def test_no_other_file_opens_sshd(node: Node) -> None:
    """A block in a drop-in, or at the end of the main file, lets nobody in; a trial that goes back brings all back."""
    main, drop_in = (node.root / "etc/ssh" / file for file in ("sshd_config", "sshd_config.d/10-x.conf"))
    before = main.read_text()
    opened = before.replace("00-bedplate.conf", "*.conf") + OPENING
    main.write_text(opened)
    drop_in.write_text(OPENING)

    node.run(f"{SCRIPT} begin 60")
    tried = node.run("sshd -T -C user=root,host=x,addr=192.0.2.1")
    node.run(f"{SCRIPT} back")
    back = main.read_text()
    main.write_text(before)
    drop_in.unlink()

    assert before.splitlines()[0] == "Include /etc/ssh/sshd_config.d/00-bedplate.conf"
    assert back == opened
    assert "permitrootlogin no" in tried
    assert "authorizedkeysfile /etc/ssh/authorized_keys.d/%u\n" in tried


def test_who_knocks_when_it_returns_is_answered(node: Node) -> None:
    """Daemons of SSH close their door while they read settings anew: no trial, and no end of one, leaves it shut."""
    knock = "exec 3<>/dev/tcp/127.0.0.1/22 && exec 3>&-"
    rounds = f"for round in 1 2 3 4 5; do {SCRIPT} begin 60 && {knock} && {SCRIPT} back && {knock} || exit 1; done"

    node.run(f"bash -c '{rounds}'")


def test_what_is_confirmed_stays(node: Node) -> None:
    """After a confirmation the timer is gone, and a second one finds nothing to do."""
    want(node, OPEN.replace("192.168.40.0/22", "192.168.40.0/21"))
    node.run(f"{SCRIPT} begin 5")
    first, second = (node.ssh(f"sudo {CONFIRM}") for _ in range(2))
    time.sleep(7)

    assert (first.returncode, second.stdout.strip()) == (0, "nothing to confirm")
    assert "192.168.40.0/21" in node.run("nft list set inet bedplate from_tcp_22")
    assert "bedplate-trial-back" not in node.run("systemctl list-timers --all")


@pytest.mark.parametrize("way", ["restart", "crash"])
def test_a_machine_that_starts_in_the_middle_starts_as_before(node: Node, way: str) -> None:
    """A trial does not outlive a boot: the last settings that somebody confirmed are loaded."""
    want(node, SHUT)
    node.run(f"{SCRIPT} begin 600; sync")

    getattr(node, way)()
    want(node, OPEN)

    assert lets_us_in(node)
    assert "192.168.40.0/2" in node.run("nft list table inet bedplate")


@pytest.mark.parametrize(
    ("packets", "sshd"),
    [("table inet bedplate { chain input {", KEYS_ONLY), (OPEN, "PermitRootLogin perhaps\n")],
    ids=["filter", "sshd"],
)
def test_what_is_no_setting_never_comes_into_force(node: Node, packets: str, sshd: str) -> None:
    """What nft or sshd refuse is refused before anything is changed for good, and nothing is left on trial."""
    before = node.run("nft list table inet bedplate; sshd -T")
    want(node, packets, sshd)

    with pytest.raises(CommandError):
        node.run(f"{SCRIPT} begin 60")
    want(node, OPEN)

    assert node.run("nft list table inet bedplate; sshd -T") == before
    assert node.run("ls /var/lib/bedplate").split() == []
    assert lets_us_in(node)


def test_tables_of_others_stay(node: Node) -> None:
    """What Kubernetes or a gateway has loaded is there after a trial, with its rules."""
    node.run(
        "nft add table ip theirs; nft add chain ip theirs nat; nft add rule ip theirs nat ip daddr 10.9.9.9 accept"
    )
    want(node, OPEN)
    node.run(f"{SCRIPT} begin 60 && {CONFIRM}")

    assert "ip daddr 10.9.9.9 accept" in node.run("nft list table ip theirs")


def test_a_door_is_open_to_whom_it_names_and_to_nobody_else(node: Node) -> None:
    """SSH answers the LAN; a service that no door names answers nobody, and answers once a door names it."""
    named = ruleset((LAN, Rule("hidden", "hidden", LAN.block, "tcp", HIDDEN)), frozenset())
    node.run(f"systemd-run --quiet --unit=hidden /usr/sbin/sshd -D -p {HIDDEN} -o PidFile=none")

    before = answers(node, HIDDEN)
    want(node, named)
    node.run(f"{SCRIPT} begin 60 && {CONFIRM}")

    assert (before, answers(node, HIDDEN)) == (False, True)


def test_a_session_that_stands_is_never_cut(node: Node) -> None:
    """Whoever is in stays in while the door closes behind them: an apply ends its work."""
    want(node, SHUT)

    told = node.ssh(f"sudo {SCRIPT} begin 5; sleep 2; echo still here; sleep 6; sudo cat /etc/bedplate/filter.nft")
    want(node, OPEN)

    assert "still here" in told.stdout
    assert "192.168.40.0/2" in told.stdout
