"""The role `hardened`, on a node in memory."""

import subprocess
import sys
from ipaddress import IPv4Network
from pathlib import Path

import pytest

from bedplate.plan.firewall import ANYWHERE, Rule
from bedplate.plan.fleet import PEOPLE_IDS
from bedplate.plan.nodes import Duty
from roles.files import text_of
from roles.hardened import firewall as packet_filter
from roles.hardened.firewall import (
    ENABLED,
    FORWARDERS,
    HOSTS,
    MARK,
    PATH,
    UNIT_PATH,
    InboundRule,
    merge_rules,
    emergency_ruleset,
    ruleset,
)
from roles.hardened.logins import CONFIRM, SCRIPT, settings
from roles.hardened.role import SYSCTL, Hardened, FileModes, wanted
from tests.testlab.fakes.node import Lines, Recorded, recorded
from tests.testlab.fakes.node_states import again, unhardened

SSH = Rule("ssh-from-cellar", "SSH from the cellar", IPv4Network("192.168.40.0/22"), "tcp", 22)
FIGURES = Rule("figures", "Figures", SSH.block, "tcp", 9100)
ROLE = Hardened(doors=(SSH,), duties=frozenset())
DEBIAN = recorded("debian-12")
TABLES = [DEBIAN, recorded("ubuntu-24.04")]
LATER = ["configure", "activate"]
ON_TRIAL = "Activate packet filter and sshd for confirmation"


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_the_bake_of_an_image_tries_nothing(table: Recorded) -> None:
    """Without a running system, files are written and nothing is put in force."""
    played = unhardened(table).play(ROLE, stages=["install", "configure"])

    assert ON_TRIAL not in played.names
    assert "Apply kernel hardening sysctls" not in played.names
    assert not [line for line in played.commands if "systemctl" in line and "is-active" not in line]


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_what_is_wanted_is_written_and_tried_last(table: Recorded) -> None:
    """The texts lie where the trial finds them, readable by root alone, and the trial begins after all else."""
    played = unhardened(table).play(ROLE)

    assert played.disk.entries["/etc/bedplate/wanted/filter.nft"].mode == 600
    assert "192.168.40.0/22" in played.written("/etc/bedplate/wanted/filter.nft")
    assert played.names[-1] == ON_TRIAL
    assert played.step(ON_TRIAL).commands == (f"{SCRIPT} begin 120",)


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_a_second_run_changes_nothing(table: Recorded) -> None:
    """What is in place and in force is left alone."""
    disk = unhardened(table).play(ROLE).disk

    assert again(table, disk).play(ROLE, stages=LATER).changes == []


@pytest.mark.parametrize(
    ("fact", "answer", "mended"),
    [
        ("hardened.logins.InForce", None, ON_TRIAL),
        (
            "files.DropIns",
            ("/run/systemd/system/bedplate-filter.service.d",),
            "Remove drop-ins of the packet filter units",
        ),
        ("hardened.role.Remountable", ("rw,nosuid",), "Remount /dev/shm with noexec"),
        ("hardened.role.Strength", ("rsa 3072", "short 0"), "Replace the RSA host key by one of 4096 bits"),
        ("hardened.role.Strength", ("rsa", "short 0"), "Replace the RSA host key by one of 4096 bits"),
        ("hardened.role.Strength", ("rsa 4096", "short 1"), "Remove short primes of sshd"),
        ("hardened.role.Modes", ("644 root /etc/crontab",), "Restrict file modes"),
        ("system.Settable", ("kernel.sysrq=1",), "Apply kernel hardening sysctls"),
        ("system.Settable", ("net.ipv6.conf.eth0.accept_ra=1",), "Apply kernel hardening sysctls"),
    ],
    ids=["filter", "drop-in", "memory", "weak-key", "no-key", "primes", "modes", "kernel", "interface"],
)
def test_what_was_changed_by_hand_is_mended(fact: str, answer: Lines, mended: str) -> None:
    """Each drift is mended by one operation, and nothing else is done."""
    disk = unhardened(DEBIAN).play(ROLE).disk

    played = again(DEBIAN, disk, {f"roles.{fact}": answer}).play(ROLE, stages=LATER)

    assert played.changes == [mended]


def test_what_lets_aws_s_keys_in_is_purged() -> None:
    """Canonical's images ask AWS for keys by an option of sshd, over which no file has a say; Debian's do not."""
    steps = ("Remove EC2 Instance Connect", "Restart sshd without EC2 Instance Connect")
    ubuntu, debian = (unhardened(table).play(ROLE, stages=["install"]) for table in (recorded("ubuntu-24.04"), DEBIAN))

    purged, anew = (ubuntu.step(name).commands for name in steps)
    assert purged[0].endswith(" purge ec2-instance-connect")
    assert "systemctl restart ssh.service" in anew[0]
    assert not {*steps} & {*debian.changes}


@pytest.mark.parametrize(("path", "reloads"), [("/etc/ssh/sshd_config", True), ("/etc/crontab", False)])
def test_sshd_reads_a_file_anew_whose_mode_was_mended(path: str, *, reloads: bool) -> None:
    """The file has changed since the daemon read it, and the audit cannot tell a mode from a text."""
    disk = unhardened(DEBIAN).play(ROLE).disk

    played = again(DEBIAN, disk, {"roles.hardened.role.Modes": (f"644 root {path}",)}).play(ROLE, stages=LATER)

    assert any("reload ssh.service" in command for command in played.step("Restrict file modes").commands) is reloads


@pytest.mark.parametrize(("group", "mode"), [("syslog", "775"), ("root", "755")], ids=["ubuntu", "debian"])
def test_the_folder_of_logs_is_as_its_distribution_has_it(group: str, mode: str) -> None:
    """Ubuntu's rsyslog makes logs by its group, and systemd sets that mode at each boot; Debian's is root."""
    assert FileModes().process([f"755 {group} /var/log"]) == {"/var/log": ("755", group)}
    assert wanted("/var/log", group) == mode
    assert wanted("/etc/crontab", group) == "600"


@pytest.mark.parametrize(
    ("doors", "written"),
    [((SSH,), ["Write the packet filter"]), ((FIGURES,), ["Write the emergency firewall rules", "Write the packet filter"])],
    ids=["another", "ssh"],
)
def test_a_door_that_closes_changes_the_filter_alone(doors: tuple[Rule, ...], written: list[str]) -> None:
    """An edit of the plan's doors writes one file and begins a trial; SSH's are in that of emergencies, too."""
    disk = unhardened(DEBIAN).play(Hardened(doors=(SSH, FIGURES), duties=frozenset())).disk
    shut = Hardened(doors=doors, duties=frozenset())

    played = again(DEBIAN, disk, {"roles.hardened.logins.InForce": None}).play(shut, stages=LATER)

    assert played.changes == [*written, ON_TRIAL]


@pytest.mark.parametrize(("machine", "bits"), [("x86_64", {"b64", "b32"}), ("aarch64", {"b64"})])
def test_calls_of_the_kernel_are_audited_in_each_form_that_the_machine_has(machine: str, bits: set[str]) -> None:
    """On x86_64 a program of 32 bits is another way to the same call; elsewhere auditctl might refuse the file."""
    table = DEBIAN.but({"server.Arch": (machine,)})
    text = unhardened(table).play(ROLE, stages=LATER).written("/etc/audit/rules.d/50-bedplate.rules")

    calls = [line for line in text.splitlines() if line.startswith("-a ")]
    assert {line.split("arch=")[1].split()[0] for line in calls} == bits
    assert len(calls) == 5 * len(bits)


def test_the_host_key_by_which_the_node_is_known_stays() -> None:
    """Whoever recorded the key of type ed25519 is never refused after an apply."""
    played = unhardened(DEBIAN).play(ROLE)

    assert not [line for line in played.commands if "ed25519" in line]


@pytest.mark.parametrize(
    ("duty", "refuses", "reverse"),
    [
        (Duty.FILES, True, "1"),
        (Duty.WORKBENCH, False, "1"),
        *((duty, False, "2") for duty in (Duty.WORKER, Duty.TUNNELS, Duty.LAPTOPS)),
    ],
)
def test_only_machines_that_pass_packets_on_may(duty: Duty, *, refuses: bool, reverse: str) -> None:
    """Forwarding is refused where nothing is forwarded, and answers may go another way only where something is.

    On a workbench it is the matter of what runs people's containers, which an apply must not turn off under them.
    """
    played = unhardened(DEBIAN).play(Hardened(doors=(), duties=frozenset({duty})))
    text = played.written(SYSCTL)

    assert ("net.ipv4.ip_forward = 0" in text) is refuses
    assert f"net.ipv4.conf.all.rp_filter = {reverse}\n" in text


def test_no_file_of_the_distribution_is_read_after_ours() -> None:
    """Both distributions bring 99-protect-links.conf, which sets fs.protected_fifos back at each boot."""
    played = unhardened(DEBIAN).play(Hardened(doors=(), duties=frozenset()))

    assert "fs.protected_fifos = 2\n" in played.written(SYSCTL)
    assert SYSCTL.rpartition("/")[2] > "99-sysctl.conf"


def test_a_fabric_may_answer_by_another_interface() -> None:
    """A machine with several interfaces on one network would drop its own packets under a strict filter."""
    played = unhardened(DEBIAN).play(Hardened(doors=(), duties=frozenset(), fabric=True))

    assert "net.ipv4.conf.all.rp_filter = 2\n" in played.written(SYSCTL)


_SYSTEMCTL = """#!/bin/sh
echo "$*" >>{log}
case "$*" in
  *is-active\\ ssh.socket) {socket} ;;
  show*) if grep -q daemon-reload {log}; then echo "{after}"; else echo 0.0.0.0:22; fi ;;
  restart*) {restarts} ;;
esac
"""


@pytest.mark.parametrize(
    ("socket", "after", "restarts", "done"),
    [
        ("false", "", "true", ["reload ssh.service"]),
        ("true", "0.0.0.0:22", "true", ["daemon-reload", "reload ssh.service"]),
        ("true", "0.0.0.0:22 [::]:22", "true", ["daemon-reload", "stop ssh.service", "restart ssh.socket"]),
        (
            "true",
            "10.9.9.9:22",
            "false",
            ["daemon-reload", "stop ssh.service", "restart ssh.socket", "start ssh.service"],
        ),
    ],
    ids=["debian", "ubuntu", "ubuntu-elsewhere", "ubuntu-no-address"],
)
def test_a_socket_that_listens_in_sshds_place_listens_as_its_settings_say(
    socket: str, after: str, restarts: str, done: list[str], tmp_path: Path
) -> None:
    """Ubuntu's reads ports and addresses when systemd is told to; where it cannot listen there, sshd does by itself."""
    log, program = tmp_path / "log", tmp_path / "systemctl"
    program.write_text(_SYSTEMCTL.format(log=log, socket=socket, after=after, restarts=restarts))
    program.chmod(0o755)
    functions = text_of("hardened/bedplate-trial").partition("\ninstall -d -m 755 /run/bedplate ")[0]

    subprocess.run(["sh", "-c", f"PATH={tmp_path}:$PATH\n{functions}\nreload"], check=True)

    assert [line for line in log.read_text().splitlines() if "is-active" not in line and "show" not in line] == done


def test_shellcheck_finds_nothing_in_the_trial() -> None:
    """The program that goes back must not fail for a slip of the shell."""
    told = subprocess.run(
        [str(Path(sys.executable).parent / "shellcheck"), "-"],
        input=text_of("hardened/bedplate-trial"),
        capture_output=True,
        text=True,
        check=False,
    )

    assert told.stdout == ""


def test_the_confirmation_is_the_program_that_the_role_ships() -> None:
    """Whoever applies confirms by the same program that would go back."""
    assert f"{SCRIPT} confirm" == CONFIRM


def test_su_asks_for_the_group_without_members() -> None:
    """The distribution's line of pam_wheel is set below pam_rootok; its other comments of that module go."""
    played = unhardened(DEBIAN).play(ROLE)

    assert played.written("/etc/pam.d/su") == (
        "auth       sufficient pam_rootok.so\n"
        "auth       required   pam_wheel.so use_uid group=sugroup\n"
        "@include common-auth\n"
    )


def test_pam_takes_the_profiles_when_one_has_changed() -> None:
    """pam-auth-update runs once for new profiles, and not again."""
    first = unhardened(DEBIAN).play(ROLE)
    disk = first.disk
    second = again(DEBIAN, disk).play(ROLE, stages=LATER)

    assert first.step("Enable PAM profiles").commands == ("DEBIAN_FRONTEND=noninteractive pam-auth-update --package",)
    assert not second.step("Enable PAM profiles").changed


LAN = IPv4Network("192.168.40.0/22")
ROLES_HARDENED_EMERGENCY_SSH = Rule("ssh-from-cellar", "SSH from the cellar", LAN, "tcp", 22)
OTHERS = (
    Rule("figures", "Figures", LAN, "tcp", 9100),
    Rule("ike-500", "IKE", ANYWHERE.block, "udp", 500),
    Rule("all-from-nodes", "All", IPv4Network("10.64.32.0/19")),
)


def test_of_the_plans_doors_those_of_ssh_alone_are_open() -> None:
    """An administrator comes in to mend the node, and nobody else to anything."""
    text = emergency_ruleset((ROLES_HARDENED_EMERGENCY_SSH, *OTHERS))

    assert [line.strip() for line in text.splitlines() if "dport" in line and line.endswith("accept")] == [
        "udp sport 67 udp dport 68 accept",
        "ip saddr @from_tcp_22 tcp dport 22 accept",
    ]
    assert text.count("policy drop;") == 2
    assert "10.64.32.0/19" not in text


@pytest.mark.parametrize("rules", [(), OTHERS], ids=["no doors", "others"])
def test_a_plan_without_ssh_opens_nothing(rules: tuple[Rule, ...]) -> None:
    """Then the way in is the machine's console."""
    assert "dport 22" not in emergency_ruleset(rules)
    assert "set " not in emergency_ruleset(rules)


def test_it_never_takes_the_place_of_a_filter_that_stands() -> None:
    """Nftables refuses all of a text that creates what is there; the filter itself replaces whatever it finds."""
    text = emergency_ruleset((ROLES_HARDENED_EMERGENCY_SSH,))

    assert "\ncreate table inet bedplate\n" in text
    assert "delete" not in text


def test_a_filter_and_the_emergency_are_told_apart() -> None:
    """The program on the node finds by a chain's name which of them is loaded."""
    assert f"chain {MARK} {{" in emergency_ruleset((ROLES_HARDENED_EMERGENCY_SSH,))
    assert MARK not in packet_filter.ruleset((ROLES_HARDENED_EMERGENCY_SSH, *OTHERS), frozenset())
    assert f"nft list chain inet bedplate {MARK} " in text_of("hardened/bedplate-trial")


def test_nobody_on_a_node_that_is_shut_speaks_to_file_servers() -> None:
    """They believe their clients, whatever became of the filter that keeps people from them."""
    assert "tcp dport 2049 meta skuid != { 0, 61184-65519 } drop" in emergency_ruleset(())


def test_every_boot_begins_with_it(system: Recorded) -> None:
    """It lies there, root's alone, and is enabled, before the first filter is ever tried."""
    played = unhardened(system).play(
        Hardened(doors=(ROLES_HARDENED_EMERGENCY_SSH,), duties=frozenset()), stages=["install", "configure"]
    )

    assert played.disk.entries[PATH].mode == 600
    assert played.disk.entries[ENABLED].content == UNIT_PATH
    assert "Before=bedplate-filter.service network-pre.target" in played.written(UNIT_PATH)


ROLES_HARDENED_FILTER_SSH = Rule("ssh-from-cellar", "SSH from the cellar", LAN, "tcp", 22)
IKE = Rule("ike-500", "IKE", ANYWHERE.block, "udp", 500)
ESP = Rule("esp", "ESP", ANYWHERE.block, "esp")
ALL = Rule("all-from-nodes", "All", IPv4Network("10.64.32.0/19"))


def chain(text: str, name: str) -> list[str]:
    """Return the rules of a chain, without its first line."""
    _, _, rest = text.partition(f"chain {name} {{\n")
    return [line.strip() for line in rest.partition("\n\t}")[0].splitlines()]


@pytest.mark.parametrize(
    ("rule", "line"),
    [
        (ROLES_HARDENED_FILTER_SSH, "ip saddr @from_tcp_22 tcp dport 22 accept"),
        (IKE, "udp dport 500 accept"),
        (ESP, "meta l4proto esp accept"),
        (ALL, "ip saddr @from_all accept"),
    ],
    ids=["port-from-block", "port-from-anywhere", "protocol", "everything-from-block"],
)
def test_each_kind_of_door_is_said(rule: Rule, line: str) -> None:
    """A door names its sources, its protocol and its port, each only where the plan narrows it."""
    assert line in chain(ruleset((rule,), frozenset()), "input")


def test_what_no_door_lets_in_is_dropped() -> None:
    """Without doors nothing new comes in but pings, neighbours and addresses."""
    text = ruleset((), frozenset())

    accepts = [line for line in chain(text, "input") if line.endswith("accept") and not line.startswith("icmp")]
    assert accepts == ['iif "lo" accept', "ct state established,related accept", "udp sport 67 udp dport 68 accept"]
    assert "type filter hook input priority filter; policy drop;" in text
    assert "set " not in text


@pytest.mark.parametrize("duty", sorted(Duty))
def test_no_router_advertises_itself(duty: Duty) -> None:
    """Settings of the kernel reach neither interfaces from before them nor networkd, which listens by itself."""
    assert "nd-router-advert" not in ruleset((ROLES_HARDENED_FILTER_SSH,), frozenset({duty}))


def test_blocks_of_one_port_are_one_set() -> None:
    """A block within another is said once, and neighbours are joined."""
    halves = [Rule(name, name, block, "tcp", 22) for name, block in zip("ab", LAN.subnets(1), strict=True)]

    found = merge_rules((*halves, ROLES_HARDENED_FILTER_SSH))

    assert found == (InboundRule("from_tcp_22", "tcp", 22, (LAN,)),)


def test_everywhere_swallows_every_block() -> None:
    """A port that is open to all needs no set."""
    anywhere = Rule("any", "any", ANYWHERE.block, "tcp", 22)

    assert merge_rules((ROLES_HARDENED_FILTER_SSH, anywhere)) == (InboundRule("from_tcp_22", "tcp", 22, ()),)


def test_the_order_of_doors_changes_nothing() -> None:
    """The same doors in another order are the same text, so that an apply finds nothing to do."""
    rules = (ROLES_HARDENED_FILTER_SSH, IKE, ESP, ALL)

    assert ruleset(rules, frozenset()) == ruleset(rules[::-1], frozenset())


def test_only_the_fleet_s_own_table_is_replaced() -> None:
    """What Kubernetes, docker and the guards of gateways have loaded stays."""
    text = ruleset((ROLES_HARDENED_FILTER_SSH,), frozenset())

    assert "flush" not in text
    assert [line for line in text.splitlines() if line.startswith(("table", "delete"))] == [
        "table inet bedplate",
        "delete table inet bedplate",
        "table inet bedplate {",
    ]


@pytest.mark.parametrize("duty", sorted(Duty))
def test_packets_are_passed_on_only_by_whom_they_are_to_pass(duty: Duty) -> None:
    """Kubernetes and gateways forward by rules of their own; every other machine forwards nothing."""
    shut = "hook forward priority filter; policy drop;"

    assert (shut in ruleset((), frozenset({duty}))) is (duty not in FORWARDERS)


@pytest.mark.parametrize("duty", sorted(Duty))
def test_nobody_on_a_machine_speaks_to_file_servers_himself(duty: Duty) -> None:
    """Only root, as whom the kernel mounts, and stunnel's passing id; every other sender is told no at once."""
    rules = chain(ruleset((), frozenset({duty})), "output")

    refusal = "tcp dport 2049 meta skuid != { 0, 61184-65519 } counter reject with tcp reset"
    assert rules == ["type filter hook output priority filter; policy accept;", refusal]
    assert PEOPLE_IDS.stop <= 61184


@pytest.mark.parametrize("duty", sorted(Duty))
def test_pods_speak_to_no_file_server_but_another_pod(duty: Duty) -> None:
    """Their volumes are the machine's to mount; a gateway still leads what a region's nodes mount from another."""
    pods = Rule("all-from-pods", "All from pods", IPv4Network("10.244.0.0/16"))
    text = ruleset((pods,), frozenset({duty}))

    refusal = "ip daddr != 10.244.0.0/16 tcp dport 2049 counter reject with tcp reset"
    assert (refusal in text) is (duty in {Duty.WORKER, Duty.CONTROL})


@pytest.mark.parametrize("duty", sorted(set(Duty) - FORWARDERS))
def test_only_where_people_work_are_containers_led_out(duty: Duty) -> None:
    """A workbench leads on what its bridges send, and what it publishes to whom everything is open; others nothing."""
    rules = chain(ruleset((ROLES_HARDENED_FILTER_SSH, ALL), frozenset({duty})), "forward")[1:]

    bridges = [f'iifname "{name}" accept' for name in ("docker*", "br-*", "podman*", "cni-podman*")]
    published = "ct status dnat ip saddr @from_all accept"
    refused = "tcp dport 2049 counter reject with tcp reset"
    wanted = ["ct state established,related accept", published, refused, *bridges, "counter drop"]
    assert rules == (wanted if duty in HOSTS else [])


def values(text: str) -> dict[str, str]:
    """Return the value of each keyword before the first Match; of one said twice, the first."""
    found: dict[str, str] = {}
    for line in text.partition("\nMatch ")[0].splitlines():
        keyword, _, value = line.partition(" ")
        if keyword and keyword != "#":
            found.setdefault(keyword.lower(), value)
    return found


@pytest.mark.parametrize(
    ("duty", "forwarding"),
    [
        (Duty.WORKBENCH, "local"),
        (Duty.TUNNELS, "local"),
        (Duty.LAPTOPS, "local"),
        (Duty.WORKER, "no"),
        (Duty.CONTROL, "no"),
        (Duty.FILES, "no"),
    ],
)
def test_only_machines_that_people_pass_through_forward(duty: Duty, forwarding: str) -> None:
    """A notebook on a workbench is reached by a forwarded port; a worker has none to reach."""
    assert values(settings(frozenset({duty})))["allowtcpforwarding"] == forwarding


def test_keys_lie_where_only_root_writes() -> None:
    """A key that a person adds to a home opens nothing; only the accounts of images keep theirs."""
    text = settings(frozenset())

    assert values(text)["authorizedkeysfile"] == "/etc/ssh/authorized_keys.d/%u"
    images, everybody = text.split("\nMatch ")[1:]
    assert images.splitlines()[:2] == [
        "User ubuntu,debian,admin",
        "    AuthorizedKeysFile /etc/ssh/authorized_keys.d/%u .ssh/authorized_keys",
    ]
    assert "AuthorizedKeysFile /etc/ssh/authorized_keys.d/%u\n" in everybody


def test_no_block_that_comes_after_says_otherwise() -> None:
    """Of blocks the first that concerns a session counts: ours repeats, for all, who gets in."""
    text = settings(frozenset())
    blocks = [line.split() for line in text.rpartition("\nMatch all\n")[2].splitlines()]

    assert {keyword.lower(): " ".join(value) for keyword, *value in blocks}.items() <= values(text).items()
    assert ["PermitRootLogin", "no"] in blocks


def test_no_algorithm_is_one_that_fell() -> None:
    """No SHA-1, no CBC, no NIST curve for the exchange of keys, no MAC before encryption."""
    found = values(settings(frozenset()))

    for keyword in ("kexalgorithms", "ciphers", "macs", "hostkeyalgorithms"):
        for name in found[keyword].split(","):
            assert not any(weak in name for weak in ("sha1", "cbc", "nistp", "group14", "md5", "ssh-rsa", "3des"))
    assert all(name.endswith("-etm@openssh.com") for name in found["macs"].split(","))
