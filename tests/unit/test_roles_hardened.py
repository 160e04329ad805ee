"""The role `hardened`: packet filter, emergency rules, sshd, PAM, audit and sysctls."""

import subprocess
import sys
from ipaddress import IPv4Network
from pathlib import Path

import pytest
from pyinfra.api.facts import FactBase

from bedplate.plan.firewall import ANYWHERE, METRICS_PORTS, FirewallRule
from bedplate.plan.nodes import NodeRole
from roles.base import file_text
from roles.hardened.firewall import (
    ENABLED,
    FORWARDERS,
    HOSTS,
    MARK,
    METADATA,
    MOUNTERS,
    PATH,
    UNIT_PATH,
    InboundRule,
    emergency_ruleset,
    merge_rules,
    ruleset,
)
from roles.hardened.logins import CONFIRM, SCRIPT, InForce, settings
from roles.hardened.role import SYSCTL, ExecutableShm, FileModes, Hardened, KeyStrength, required_mode
from roles.system import DropIns, Settable
from tests.testlab.fakes.node import Lines, Recorded, recorded
from tests.testlab.fakes.node_states import hardened, unhardened

SSH = FirewallRule("ssh-from-cellar", "SSH from the cellar", IPv4Network("192.168.40.0/22"), "tcp", 22)
METRICS = FirewallRule("metrics", "Metrics", SSH.block, "tcp", 9100)
ROLE = Hardened(rules=(SSH,), node_roles=frozenset())
DEBIAN = recorded("debian-12")
TABLES = [DEBIAN, recorded("ubuntu-24.04")]
LATER = ["configure", "activate"]  # the stages after `install`
ACTIVATE = "Activate packet filter and sshd for confirmation"


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_an_image_build_activates_nothing(table: Recorded) -> None:
    """An image build writes files, but starts, reloads and activates nothing."""
    played = unhardened(table).play(ROLE, stages=["install", "configure"])

    assert ACTIVATE not in played.names
    assert "Apply kernel hardening sysctls" not in played.names
    assert not [line for line in played.commands if "systemctl" in line and "is-active" not in line]


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_packet_filter_and_sshd_are_activated_last(table: Recorded) -> None:
    """Both files are readable only by root, and are activated after all other operations."""
    played = unhardened(table).play(ROLE)

    assert played.disk.entries["/etc/bedplate/wanted/filter.nft"].mode == 600
    assert "192.168.40.0/22" in played.written("/etc/bedplate/wanted/filter.nft")
    assert played.names[-1] == ACTIVATE
    assert played.step(ACTIVATE).commands == (f"{SCRIPT} begin 120",)


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_a_second_run_changes_nothing(table: Recorded) -> None:
    """A second run after a confirmed apply changes nothing."""
    disk = unhardened(table).play(ROLE).disk

    assert hardened(table, disk).play(ROLE, stages=LATER).changes == []


@pytest.mark.parametrize(
    ("fact", "answer", "operation"),
    [
        (InForce, None, ACTIVATE),
        (
            DropIns,
            ("/run/systemd/system/bedplate-filter.service.d",),
            "Remove drop-ins of the packet filter units",
        ),
        (ExecutableShm, ("rw,nosuid",), "Remount /dev/shm with noexec"),
        (KeyStrength, ("rsa 3072", "short 0"), "Replace the RSA host key by one of 4096 bits"),
        (KeyStrength, ("rsa", "short 0"), "Replace the RSA host key by one of 4096 bits"),
        (KeyStrength, ("rsa 4096", "short 1"), "Remove short primes of sshd"),
        (FileModes, ("644 root /etc/crontab",), "Restrict file modes"),
        (Settable, ("kernel.sysrq=1",), "Apply kernel hardening sysctls"),
        (Settable, ("net.ipv6.conf.eth0.accept_ra=1",), "Apply kernel hardening sysctls"),
    ],
    ids=["filter", "drop-in", "memory", "weak-key", "no-key", "primes", "modes", "kernel", "interface"],
)
def test_a_change_by_hand_is_reverted(fact: type[FactBase[object]], answer: Lines, operation: str) -> None:
    """Each change by hand is reverted by one operation, and nothing else changes."""
    disk = unhardened(DEBIAN).play(ROLE).disk

    played = hardened(DEBIAN, disk, {fact.name: answer}).play(ROLE, stages=LATER)

    assert played.changes == [operation]


def test_ec2_instance_connect_is_removed() -> None:
    """Ubuntu's images for AWS have EC2 Instance Connect, which bypasses the fleet's keys; Debian's do not."""
    steps = ("Remove EC2 Instance Connect", "Restart sshd without EC2 Instance Connect")
    ubuntu, debian = (unhardened(table).play(ROLE, stages=["install"]) for table in (recorded("ubuntu-24.04"), DEBIAN))

    purge, restart = (ubuntu.step(name).commands for name in steps)
    assert purge[0].endswith(" purge ec2-instance-connect")
    assert "systemctl restart ssh.service" in restart[0]
    assert not {*steps} & {*debian.changes}


@pytest.mark.parametrize(("path", "reloads"), [("/etc/ssh/sshd_config", True), ("/etc/crontab", False)])
def test_sshd_is_reloaded_after_a_change_of_mode(path: str, *, reloads: bool) -> None:
    """A new mode changes the ctime, which the audit reports as a configuration that sshd has not read."""
    disk = unhardened(DEBIAN).play(ROLE).disk

    played = hardened(DEBIAN, disk, {FileModes.name: (f"644 root {path}",)}).play(ROLE, stages=LATER)

    assert any("reload ssh.service" in command for command in played.step("Restrict file modes").commands) is reloads


@pytest.mark.parametrize(("group", "mode"), [("syslog", "775"), ("root", "755")], ids=["ubuntu", "debian"])
def test_the_log_folder_keeps_the_mode_of_its_distribution(group: str, mode: str) -> None:
    """Ubuntu's rsyslog creates logs as its group, and systemd sets that mode at boot; on Debian it is root."""
    assert FileModes().process([f"755 {group} /var/log"]) == {"/var/log": ("755", group)}
    assert required_mode("/var/log", group) == mode
    assert required_mode("/etc/crontab", group) == "600"


@pytest.mark.parametrize(
    ("rules", "operations"),
    [
        ((SSH,), ["Write the packet filter"]),
        ((METRICS,), ["Write the emergency firewall rules", "Write the packet filter"]),
    ],
    ids=["another", "ssh"],
)
def test_a_removed_firewall_rule_changes_only_the_filter(
    rules: tuple[FirewallRule, ...], operations: list[str]
) -> None:
    """A change of rules writes the packet filter, and the emergency rules only if it concerns SSH."""
    disk = unhardened(DEBIAN).play(Hardened(rules=(SSH, METRICS), node_roles=frozenset())).disk
    role = Hardened(rules=rules, node_roles=frozenset())

    played = hardened(DEBIAN, disk, {InForce.name: None}).play(role, stages=LATER)

    assert played.changes == [*operations, ACTIVATE]


@pytest.mark.parametrize(("machine", "bits"), [("x86_64", {"b64", "b32"}), ("aarch64", {"b64"})])
def test_system_calls_are_audited_for_each_architecture(machine: str, bits: set[str]) -> None:
    """On x86_64 the rules also cover 32-bit programs; on Arm they do not."""
    table = DEBIAN.but({"server.Arch": (machine,)})
    text = unhardened(table).play(ROLE, stages=LATER).written("/etc/audit/rules.d/50-bedplate.rules")

    rules = [line for line in text.splitlines() if line.startswith("-a ")]
    assert {line.split("arch=")[1].split()[0] for line in rules} == bits
    assert len(rules) == 5 * len(bits)


def test_the_ed25519_host_key_is_never_changed() -> None:
    """The recorded host key stays valid after an apply."""
    played = unhardened(DEBIAN).play(ROLE)

    assert not [line for line in played.commands if "ed25519" in line]


@pytest.mark.parametrize(
    ("node_role", "refuses", "reverse"),
    [
        (NodeRole.FILES, True, "1"),
        (NodeRole.WORKBENCH, False, "1"),
        *((node_role, False, "2") for node_role in (NodeRole.WORKER, NodeRole.TUNNELS, NodeRole.LAPTOPS)),
    ],
)
def test_only_forwarding_nodes_have_forwarding_enabled(node_role: NodeRole, *, refuses: bool, reverse: str) -> None:
    """Forwarding is disabled on other nodes; on a workbench it is left to Docker or Podman."""
    played = unhardened(DEBIAN).play(Hardened(rules=(), node_roles=frozenset({node_role})))
    text = played.written(SYSCTL)

    assert ("net.ipv4.ip_forward = 0" in text) is refuses
    assert f"net.ipv4.conf.all.rp_filter = {reverse}\n" in text


def test_our_sysctl_file_is_read_last() -> None:
    """99-protect-links.conf of both distributions sets a weaker fs.protected_fifos."""
    played = unhardened(DEBIAN).play(Hardened(rules=(), node_roles=frozenset()))

    assert "fs.protected_fifos = 2\n" in played.written(SYSCTL)
    assert SYSCTL.rpartition("/")[2] > "99-sysctl.conf"


def test_a_fabric_needs_loose_settings() -> None:
    """Several interfaces share one network, and libfabric reads the memory of other processes."""
    played = unhardened(DEBIAN).play(Hardened(rules=(), node_roles=frozenset(), fabric=True))

    assert "net.ipv4.conf.all.rp_filter = 2\n" in played.written(SYSCTL)
    assert "kernel.yama.ptrace_scope = 0\n" in played.written(SYSCTL)


_SYSTEMCTL = """#!/bin/sh
echo "$*" >>{log}
case "$*" in
  *is-active\\ ssh.socket) {socket} ;;
  show*) if grep -q daemon-reload {log}; then echo "{after}"; else echo 0.0.0.0:22; fi ;;
  restart*) {restarts} ;;
esac
"""
# The socket of sshd, whose process ID is what `systemctl show` prints; its inode differs at each call.
_SS = """#!/bin/sh
echo "pid=0.0.0.0:22, ino:$(wc --lines <{log})"
"""


@pytest.mark.parametrize(
    ("socket", "after", "restarts", "calls"),
    [
        ("false", "", "true", ["reload ssh.service"]),
        (
            "true",
            "0.0.0.0:22",
            "true",
            ["daemon-reload", "reset-failed ssh.service", "try-restart ssh.service"],
        ),
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
def test_ssh_socket_is_restarted_after_a_change_of_ports(
    socket: str, after: str, restarts: str, calls: list[str], tmp_path: Path
) -> None:
    """Ubuntu's ssh.socket gets new ports after a daemon-reload; if it cannot listen, sshd is started instead."""
    log = tmp_path / "log"
    systemctl = _SYSTEMCTL.format(log=log, socket=socket, after=after, restarts=restarts)
    for name, text in (("systemctl", systemctl), ("ss", _SS.format(log=log))):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    functions = file_text("hardened/bedplate-trial").partition("\ninstall -d -m 755 /run/bedplate ")[0]

    subprocess.run(["sh", "-c", f"PATH={tmp_path}:$PATH\n{functions}\nreload"], check=True)

    assert [line for line in log.read_text().splitlines() if "is-active" not in line and "show" not in line] == calls


def test_shellcheck_accepts_bedplate_trial() -> None:
    """The script that reverts changes passes shellcheck."""
    shellcheck = subprocess.run(
        [str(Path(sys.executable).parent / "shellcheck"), "-"],
        input=file_text("hardened/bedplate-trial"),
        capture_output=True,
        text=True,
        check=False,
    )

    assert shellcheck.stdout == ""


def test_the_shipped_program_confirms() -> None:
    """The command for confirmation is the program that the role writes."""
    assert f"{SCRIPT} confirm" == CONFIRM


def test_su_is_limited_to_an_empty_group() -> None:
    """The pam_wheel line replaces the distribution's comments, after pam_rootok."""
    played = unhardened(DEBIAN).play(ROLE)

    assert played.written("/etc/pam.d/su") == (
        "auth       sufficient pam_rootok.so\n"
        "auth       required   pam_wheel.so use_uid group=sugroup\n"
        "@include common-auth\n"
    )


def test_pam_auth_update_runs_after_a_change() -> None:
    """pam-auth-update runs once for new profiles."""
    first = unhardened(DEBIAN).play(ROLE)
    disk = first.disk
    second = hardened(DEBIAN, disk).play(ROLE, stages=LATER)

    assert first.step("Enable PAM profiles").commands == ("DEBIAN_FRONTEND=noninteractive pam-auth-update --package",)
    assert not second.step("Enable PAM profiles").changed


LAN = SSH.block
OTHERS = (
    FirewallRule("metrics", "Metrics", LAN, "tcp", 9100),
    FirewallRule("ike-500", "IKE", ANYWHERE.block, "udp", 500),
    FirewallRule("all-from-nodes", "All", IPv4Network("10.64.32.0/19")),
)


def test_emergency_rules_allow_only_ssh() -> None:
    """The emergency rules allow SSH from the blocks of the plan and nothing else."""
    text = emergency_ruleset((SSH, *OTHERS))

    assert [line.strip() for line in text.splitlines() if "dport" in line and line.endswith("accept")] == [
        "udp sport 67 udp dport 68 accept",
        "ip saddr @from_tcp_22 tcp dport 22 accept",
    ]
    assert text.count("policy drop;") == 2
    assert "10.64.32.0/19" not in text


@pytest.mark.parametrize("rules", [(), OTHERS], ids=["no rules", "others"])
def test_emergency_rules_without_ssh_allow_nothing(rules: tuple[FirewallRule, ...]) -> None:
    """Without an SSH rule in the plan, only the console gives access."""
    assert "dport 22" not in emergency_ruleset(rules)
    assert "set " not in emergency_ruleset(rules)


def test_emergency_rules_never_replace_a_loaded_filter() -> None:
    """`create table` fails if the table exists."""
    text = emergency_ruleset((SSH,))

    assert "\ncreate table inet bedplate\n" in text
    assert "delete" not in text


def test_emergency_rules_are_marked_by_a_chain() -> None:
    """Only the emergency rules have the chain for which bedplate-trial searches."""
    assert f"chain {MARK} {{" in emergency_ruleset((SSH,))
    assert MARK not in ruleset((SSH, *OTHERS), frozenset())
    assert f"nft list chain inet bedplate {MARK} " in file_text("hardened/bedplate-trial")


def test_emergency_rules_block_users_from_file_servers() -> None:
    """Only root and stunnel may connect to an NFS server, also under the emergency rules."""
    assert f"tcp dport 2049 meta skuid != {{ {MOUNTERS} }} drop" in emergency_ruleset(())


def test_emergency_rules_are_enabled_before_the_first_filter(system: Recorded) -> None:
    """The rules and their unit are written and enabled in the image."""
    played = unhardened(system).play(Hardened(rules=(SSH,), node_roles=frozenset()), stages=["install", "configure"])

    assert played.disk.entries[PATH].mode == 600
    assert played.disk.entries[ENABLED].content == UNIT_PATH
    assert "Before=bedplate-filter.service network-pre.target" in played.written(UNIT_PATH)


IKE = FirewallRule("ike-500", "IKE", ANYWHERE.block, "udp", 500)
ESP = FirewallRule("esp", "ESP", ANYWHERE.block, "esp")
ALL = FirewallRule("all-from-nodes", "All", IPv4Network("10.64.32.0/19"))


def chain(text: str, name: str) -> list[str]:
    """Return the rules of a chain, without its first line."""
    _, _, rest = text.partition(f"chain {name} {{\n")
    return [line.strip() for line in rest.partition("\n\t}")[0].splitlines()]


@pytest.mark.parametrize(
    ("rule", "line"),
    [
        (SSH, "ip saddr @from_tcp_22 tcp dport 22 accept"),
        (IKE, "udp dport 500 accept"),
        (ESP, "meta l4proto esp accept"),
        (ALL, "ip saddr @from_all accept"),
    ],
    ids=["port-from-block", "port-from-anywhere", "protocol", "everything-from-block"],
)
def test_each_kind_of_rule_is_rendered(rule: FirewallRule, line: str) -> None:
    """A rule has its sources, protocol and port, if the plan restricts them."""
    assert line in chain(ruleset((rule,), frozenset()), "input")


def test_other_inbound_packets_are_dropped() -> None:
    """Without rules, the filter accepts only loopback, replies, ICMP and DHCP."""
    text = ruleset((), frozenset())

    accepts = [line for line in chain(text, "input") if line.endswith("accept") and not line.startswith("icmp")]
    assert accepts == ['iif "lo" accept', "ct state established,related accept", "udp sport 67 udp dport 68 accept"]
    assert "type filter hook input priority filter; policy drop;" in text
    assert "set " not in text


@pytest.mark.parametrize("node_role", sorted(NodeRole))
def test_router_advertisements_are_dropped(node_role: NodeRole) -> None:
    """Sysctls do not apply to existing interfaces and systemd-networkd, so the filter drops them."""
    assert "nd-router-advert" not in ruleset((SSH,), frozenset({node_role}))


def test_blocks_of_one_port_are_merged() -> None:
    """Overlapping and adjacent blocks of a port become one."""
    halves = [FirewallRule(name, name, block, "tcp", 22) for name, block in zip("ab", LAN.subnets(1), strict=True)]

    merged = merge_rules((*halves, SSH))

    assert merged == (InboundRule("from_tcp_22", "tcp", 22, (LAN,)),)


def test_a_port_open_to_all_needs_no_set() -> None:
    """A rule from anywhere makes other blocks of the port redundant."""
    anywhere = FirewallRule("any", "any", ANYWHERE.block, "tcp", 22)

    assert merge_rules((SSH, anywhere)) == (InboundRule("from_tcp_22", "tcp", 22, ()),)


def test_the_order_of_rules_does_not_matter() -> None:
    """The same rules in another order give the same text."""
    rules = (SSH, IKE, ESP, ALL)

    assert ruleset(rules, frozenset()) == ruleset(rules[::-1], frozenset())


def test_only_our_table_is_replaced() -> None:
    """Tables of Kubernetes, Docker and gateways are not flushed."""
    text = ruleset((SSH,), frozenset())

    assert "flush" not in text
    assert [line for line in text.splitlines() if line.startswith(("table", "delete"))] == [
        "table inet bedplate",
        "delete table inet bedplate",
        "table inet bedplate {",
    ]


@pytest.mark.parametrize("node_role", sorted(NodeRole))
def test_only_forwarding_nodes_forward(node_role: NodeRole) -> None:
    """Kubernetes nodes and gateways have their own rules; the forward chain of other nodes drops."""
    drop = "hook forward priority filter; policy drop;"

    assert (drop in ruleset((), frozenset({node_role}))) is (node_role not in FORWARDERS)


@pytest.mark.parametrize("node_role", sorted(NodeRole))
def test_users_cannot_connect_to_file_servers(node_role: NodeRole) -> None:
    """Only root and stunnel may connect to an NFS server; other users get a reset."""
    rules = chain(ruleset((), frozenset({node_role})), "output")

    reject = f"tcp dport 2049 meta skuid != {{ {MOUNTERS} }} counter reject with tcp reset"
    assert rules[:2] == ["type filter hook output priority filter; policy accept;", reject]


@pytest.mark.parametrize("node_role", sorted(NodeRole))
def test_only_people_of_workbenches_have_the_role_of_a_machine(node_role: NodeRole) -> None:
    """Other users than root reach the metadata service on workbenches only, where people use the machine's role."""
    rules = chain(ruleset((), frozenset({node_role})), "output")

    guarded = {rule for rule in rules if rule.endswith("meta skuid != 0 counter reject") and "daddr" in rule}
    expected = {f"{match} meta skuid != 0 counter reject" for match in METADATA}
    assert guarded == (set() if node_role is NodeRole.WORKBENCH else expected)


@pytest.mark.parametrize("node_role", sorted(NodeRole))
def test_pods_cannot_connect_to_file_servers(node_role: NodeRole) -> None:
    """Pods may connect only to NFS servers in other pods; gateways still forward NFS of other nodes."""
    pods = FirewallRule("all-from-pods", "All from pods", IPv4Network("10.244.0.0/16"))
    text = ruleset((pods,), frozenset({node_role}))

    reject = "ip daddr != 10.244.0.0/16 tcp dport 2049 counter reject with tcp reset"
    assert (reject in text) is (node_role in {NodeRole.WORKER, NodeRole.CONTROL})


@pytest.mark.parametrize("node_role", sorted(set(NodeRole) - FORWARDERS))
def test_only_workbenches_forward_for_containers(node_role: NodeRole) -> None:
    """A workbench forwards packets of its container bridges, and published ports to allowed sources."""
    rules = chain(ruleset((SSH, ALL), frozenset({node_role})), "forward")[1:]

    bridges = [f'iifname "{name}" accept' for name in ("docker*", "br-*", "podman*", "cni-podman*")]
    published = "ct status dnat ip saddr @from_all accept"
    reject = "tcp dport 2049 counter reject with tcp reset"
    overlay = "udp dport 8472 counter drop"
    expected = ["ct state established,related accept", published, reject, overlay, *bridges, "counter drop"]
    assert rules == (expected if node_role in HOSTS else [])


@pytest.mark.parametrize("port", METRICS_PORTS)
def test_metrics_are_for_the_hub_alone(port: int) -> None:
    """Where all nodes and pods are admitted, only the hub reads the exporters; the machine itself does by loopback."""
    hub = FirewallRule(f"metrics-{port}-from-hub", "Metrics", IPv4Network("10.64.32.9/32"), "tcp", port)
    lines = chain(ruleset((ALL, SSH, hub), frozenset({NodeRole.WORKBENCH})), "input")

    drop = lines.index(f"tcp dport {port} ip saddr != @from_tcp_{port} counter drop")
    assert lines.index('iif "lo" accept') < drop < lines.index("ip saddr @from_all accept")
    assert f"ip saddr @from_tcp_{port} tcp dport {port} accept" in lines
    assert not [line for line in chain(ruleset((ALL, SSH), frozenset()), "input") if f"dport {port}" in line]


def values(text: str) -> dict[str, str]:
    """Return the first value of each keyword before the first Match block."""
    keywords: dict[str, str] = {}
    for line in text.partition("\nMatch ")[0].splitlines():
        keyword, _, value = line.partition(" ")
        if keyword and keyword != "#":
            keywords.setdefault(keyword.lower(), value)
    return keywords


@pytest.mark.parametrize(
    ("node_role", "forwarding"),
    [
        (NodeRole.WORKBENCH, "local"),
        (NodeRole.TUNNELS, "local"),
        (NodeRole.LAPTOPS, "local"),
        (NodeRole.WORKER, "no"),
        (NodeRole.CONTROL, "no"),
        (NodeRole.FILES, "no"),
    ],
)
def test_only_workbenches_and_gateways_allow_port_forwarding(node_role: NodeRole, forwarding: str) -> None:
    """A workbench needs port forwarding for notebooks; a worker does not."""
    assert values(settings(frozenset({node_role})))["allowtcpforwarding"] == forwarding


def test_keys_are_only_read_from_a_folder_of_root() -> None:
    """Only the accounts of images may use keys in their homes."""
    text = settings(frozenset())

    assert values(text)["authorizedkeysfile"] == "/etc/ssh/authorized_keys.d/%u"
    images, all_users = text.split("\nMatch ")[1:]
    assert images.splitlines()[:2] == [
        "User ubuntu,debian,admin",
        "    AuthorizedKeysFile /etc/ssh/authorized_keys.d/%u .ssh/authorized_keys",
    ]
    assert "AuthorizedKeysFile /etc/ssh/authorized_keys.d/%u\n" in all_users


@pytest.mark.parametrize("node_role", sorted(NodeRole))
def test_only_members_and_the_hub_give_tokens_and_nothing_else(node_role: NodeRole) -> None:
    """There, whoever is no administrator gets the token program only; other machines limit nobody by this."""
    text = settings(frozenset({node_role}), ("zoe", "ada"))

    block = [line.strip() for line in text.partition("\nMatch User *,")[2].splitlines()[:4]]
    exceptions = ["!ubuntu,!debian,!admin,!ada,!zoe"]
    program = {NodeRole.CONTROL: "kube-token", NodeRole.HUB: "bp-token"}.get(node_role)
    forced = [*exceptions, f"ForceCommand /usr/local/bin/{program}", "PermitTTY no", "DisableForwarding yes"]
    assert block == (forced if program else [])
    assert "ForceCommand" not in settings(frozenset({NodeRole.CONTROL, NodeRole.WORKBENCH}))


def test_the_last_match_block_repeats_authentication() -> None:
    """A later Match block cannot change authentication, because the first match counts."""
    text = settings(frozenset())
    blocks = [line.split() for line in text.rpartition("\nMatch all\n")[2].splitlines()]

    assert {keyword.lower(): " ".join(value) for keyword, *value in blocks}.items() <= values(text).items()
    assert ["PermitRootLogin", "no"] in blocks


def test_no_weak_algorithm_is_allowed() -> None:
    """No SHA-1, CBC, NIST curves for key exchange, or MAC before encryption."""
    keywords = values(settings(frozenset()))

    for keyword in ("kexalgorithms", "ciphers", "macs", "hostkeyalgorithms"):
        for name in keywords[keyword].split(","):
            assert not any(weak in name for weak in ("sha1", "cbc", "nistp", "group14", "md5", "ssh-rsa", "3des"))
    assert all(name.endswith("-etm@openssh.com") for name in keywords["macs"].split(","))
