"""Rules for every node: the packet filter, sysctls, kernel modules and the processor."""

import re
from collections.abc import Mapping

import pytest
from testinfra.host import Host

from bedplate.compliance.settings import applies_if, sysctl_deviations, unit_overrides
from bedplate.plan.firewall import OVERLAY
from bedplate.plan.nodes import NodePlan, NodeRole
from roles.base import file_text
from roles.hardened import firewall, role
from roles.hardened.firewall import FORWARDERS, HELD, HOSTS, METADATA, MOUNTERS, TRIED, ruleset
from roles.hardened.logins import SCRIPT, UNIT, UNIT_PATH


def test_filter_file_matches_the_plan(host: Host, node: NodePlan) -> None:
    """The packet filter file has exactly the firewall rules of the plan."""
    planned = ruleset(node.firewall_rules, node.roles, node.pod_rules)

    assert host.file("/etc/bedplate/filter.nft").content_string == planned


def test_loaded_filter_matches_the_plan(host: Host, node: NodePlan) -> None:
    """The packet filter in the kernel has exactly the firewall rules of the plan: no port was opened by hand."""
    packets = ruleset(node.firewall_rules, node.roles, node.pod_rules)
    planned = host.check_output(f"printf %%s %s | {TRIED}", packets)

    assert host.check_output(HELD) == planned


def test_input_is_dropped_by_default(host: Host) -> None:
    """Incoming packets that no firewall rule accepts are dropped."""
    assert "hook input priority filter; policy drop;" in host.check_output("nft list chain inet bedplate input")


def test_only_mounts_can_reach_nfs(host: Host) -> None:
    """Only root and the tunnels to EFS can connect to file servers, because NFS trusts the client's user ID."""
    chain = host.check_output("nft --stateless list chain inet bedplate output")

    assert f"tcp dport 2049 meta skuid != {{ {MOUNTERS} }} counter reject with tcp reset" in chain


@applies_if(lambda node: NodeRole.WORKBENCH not in node.roles)
def test_only_root_reaches_the_metadata_service(host: Host) -> None:
    """Only root gets the credentials of the machine's IAM role, except on workbenches, where people use the role."""
    chain = host.check_output("nft --stateless list chain inet bedplate output")

    assert [match for match in METADATA if f"{match} meta skuid != 0 counter reject" not in chain] == []


def test_only_root_sends_packets_of_the_overlay(host: Host) -> None:
    """Only root can send VXLAN: with it, a user could send packets in the name of any pod."""
    chain = host.check_output("nft --stateless list chain inet bedplate output")

    assert re.search(rf"^\s*udp dport {OVERLAY} meta skuid != 0 .*counter reject", chain, re.MULTILINE)


# Programs of the system and of the roles that listen as root; docker-proxy listens for ports of containers.
_LISTENERS = {"docker-proxy", "ganesha.nfsd", "rpc.mountd", "rpc.statd", "rpcbind", "sshd", "systemd"}


def test_root_listens_only_for_roles(host: Host, node: NodePlan) -> None:
    """Of root's programs, only those of the roles accept TCP connections; nodes accept all ports from each other."""
    lines = host.check_output("ss --no-header --listening --tcp --numeric --processes --extended").splitlines()
    # A user's socket has a uid, the kernel's has no program.
    open_sockets = [line for line in lines if " uid:" not in line and not re.search(r" (127\.|\[::1\])\S* ", line)]
    programs = {name for line in open_sockets for name in re.findall(r'\("([^"]+)",pid', line)}

    others = programs - _LISTENERS - ({"nginx"} if NodeRole.HUB in node.roles else set())
    assert not others, f"listen as root: {', '.join(sorted(others))}"


def test_no_confirmation_is_pending(host: Host) -> None:
    """The last apply was confirmed: the operator logged in again after it."""
    assert not host.file("/var/lib/bedplate/trial").exists


def test_filter_loads_before_the_network(host: Host) -> None:
    """The packet filter loads before any interface is up, by the unit and program of this version."""
    unit = host.check_output("systemctl show --property=UnitFileState,Before %s", UNIT)

    assert unit_overrides(host, UNIT) == []
    assert host.file(UNIT_PATH).content_string == file_text(f"hardened/{UNIT}")
    assert host.file(SCRIPT).content_string == file_text("hardened/bedplate-trial")
    assert "UnitFileState=enabled" in unit
    assert "network-pre.target" in unit


def test_boot_without_filter_allows_only_ssh(host: Host, node: NodePlan) -> None:
    """If the packet filter fails to load, the emergency filter stays: it allows only SSH from the planned sources."""
    unit = host.check_output("systemctl show --property=UnitFileState,Before %s", firewall.UNIT)

    assert unit_overrides(host, firewall.UNIT) == []
    assert host.file(firewall.PATH).content_string == firewall.emergency_ruleset(node.firewall_rules)
    assert host.file(firewall.UNIT_PATH).content_string == file_text(f"hardened/{firewall.UNIT}")
    assert "UnitFileState=enabled" in unit
    assert {"bedplate-filter.service", "network-pre.target"} <= set(unit.replace("=", " ").split())


def test_emergency_filter_is_not_active(host: Host) -> None:
    """The last boot loaded the packet filter; with the emergency filter, the node does no work."""
    marker = host.run(f"nft list chain inet bedplate {firewall.MARK}")

    assert not marker.succeeded, "the packet filter failed to load; see `journalctl --boot --unit=bedplate-filter`"


@pytest.mark.parametrize("prefix", ["net.ipv4", "net.ipv6", "net.core"])
def test_network_sysctls_are_hardened(host: Host, node: NodePlan, prefix: str) -> None:
    """The kernel ignores redirects, source routes, router advertisements and forged senders."""
    wrong = sysctl_deviations(host, _settings_of(node, prefix))
    assert not wrong, "; ".join(wrong)


def test_interface_sysctls_are_hardened(host: Host, node: NodePlan) -> None:
    """Each interface ignores redirects and router advertisements, and forwards only if the plan says so."""
    planned = {key: value for key, value in _settings(node).items() if "*" in key}

    wrong = sysctl_deviations(host, planned)
    assert not wrong, "; ".join(wrong)


@pytest.mark.parametrize("prefix", ["kernel", "fs", "dev"])
def test_kernel_sysctls_are_hardened(host: Host, node: NodePlan, prefix: str) -> None:
    """Programs cannot read kernel addresses or other users' memory, or abuse links in shared folders."""
    wrong = sysctl_deviations(host, _settings_of(node, prefix))
    assert not wrong, "; ".join(wrong)


@applies_if(lambda node: not node.roles & FORWARDERS)
def test_ip_forwarding_is_off(host: Host, node: NodePlan) -> None:
    """The node forwards no packets; a workbench forwards IPv4 packets of its containers."""
    families = ("net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding")
    # Docker turns IPv4 forwarding on, and the packet filter limits it to containers.
    off = families[1:] if node.roles & HOSTS else families

    values = [host.run(f"cat /proc/sys/{key}").stdout.strip() for key in off]
    assert set(values) <= {"0", ""}


def test_kernel_modules_can_be_loaded(host: Host) -> None:
    """The kernel accepts modules: GPU and fabric drivers load after boot."""
    assert host.run("cat /proc/sys/kernel/modules_disabled").stdout.strip() in {"", "0"}


def test_cpu_supports_no_execute(host: Host) -> None:
    """The processor supports no-execute memory pages (NX); all Arm processors do."""
    arm = host.check_output("uname -m") == "aarch64"

    assert arm or " nx " in f"{host.check_output('grep -m1 ^flags /proc/cpuinfo')} "


def _settings(node: NodePlan) -> Mapping[str, str]:
    return dict(role.values(role.settings(node.roles, fabric=node.fabric)))


def _settings_of(node: NodePlan, prefix: str) -> Mapping[str, str]:
    return {key: value for key, value in _settings(node).items() if key.startswith(f"{prefix}.") and "*" not in key}
