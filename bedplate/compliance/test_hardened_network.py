"""Every node: what its packet filter lets in, and what its kernel refuses of the network."""

from collections.abc import Mapping

import pytest
from testinfra.host import Host

from bedplate.compliance.settings import altered, amiss
from bedplate.compliance.subject import concerns
from bedplate.plan.nodes import NodePlan
from roles.files import text_of
from roles.hardened import firewall, role
from roles.hardened.firewall import FORWARDERS, HELD, HOSTS, TRIED, ruleset
from roles.hardened.logins import SCRIPT, UNIT, UNIT_PATH


def test_only_the_plan_s_doors_are_open(host: Host, node: NodePlan) -> None:
    """The packet filter in force is the one that the plan asks for, to the letter."""
    assert host.file("/etc/bedplate/filter.nft").content_string == ruleset(node.doors, node.duties)


def test_nobody_has_changed_the_loaded_filter(host: Host, node: NodePlan) -> None:
    """The kernel holds the table that the plan asks for, rule by rule: nobody has opened a door by hand."""
    wanted = host.check_output(f"printf %%s %s | {TRIED}", ruleset(node.doors, node.duties))

    assert host.check_output(HELD) == wanted


def test_what_no_door_lets_in_is_dropped(host: Host) -> None:
    """The chain of packets that come in ends in a drop, whatever its rules say."""
    assert "hook input priority filter; policy drop;" in host.check_output("nft list chain inet bedplate input")


def test_nobody_but_the_machine_itself_speaks_to_file_servers(host: Host) -> None:
    """File servers believe who a client says it asks for: a program of a person's own would be whom it likes."""
    sent = host.check_output("nft --stateless list chain inet bedplate output")

    assert "tcp dport 2049 meta skuid != { 0, 61184-65519 } counter reject with tcp reset" in sent


def test_nothing_is_on_trial(host: Host) -> None:
    """Whoever applied has come in again since, and confirmed."""
    assert not host.file("/var/lib/bedplate/trial").exists


def test_the_filter_stands_before_the_network_does(host: Host) -> None:
    """It is loaded at boot, before any interface is up, by the unit and the program that were shipped and no others."""
    unit = host.check_output("systemctl show --property=UnitFileState,Before %s", UNIT)

    assert altered(host, UNIT) == []
    assert host.file(UNIT_PATH).content_string == text_of(f"hardened/{UNIT}")
    assert host.file(SCRIPT).content_string == text_of("hardened/bedplate-trial")
    assert "UnitFileState=enabled" in unit
    assert "network-pre.target" in unit


def test_a_boot_without_its_filter_is_shut(host: Host, node: NodePlan) -> None:
    """Before the filter, a boot loads what lets in nothing but SSH from where the plan does; it stays if that fails."""
    unit = host.check_output("systemctl show --property=UnitFileState,Before %s", firewall.UNIT)

    assert altered(host, firewall.UNIT) == []
    assert host.file(firewall.PATH).content_string == firewall.emergency_ruleset(node.doors)
    assert host.file(firewall.UNIT_PATH).content_string == text_of(f"hardened/{firewall.UNIT}")
    assert "UnitFileState=enabled" in unit
    assert {"bedplate-filter.service", "network-pre.target"} <= set(unit.replace("=", " ").split())


def test_the_filter_in_force_is_not_that_of_emergencies(host: Host) -> None:
    """The last boot could load the packet filter: only then does the node do its work."""
    found = host.run(f"nft list chain inet bedplate {firewall.MARK}")

    assert not found.succeeded, "the filter could not be loaded: `journalctl --boot --unit=bedplate-filter` says why"


@pytest.mark.parametrize("about", ["net.ipv4", "net.ipv6", "net.core"])
def test_the_kernel_refuses_what_strangers_send(host: Host, node: NodePlan, about: str) -> None:
    """No redirect, no source route, no advertisement of a router, no forged sender changes the ways of packets."""
    wrong = amiss(host, _about(node, about))
    assert not wrong, "; ".join(wrong)


def test_no_interface_takes_what_the_machine_refuses(host: Host, node: NodePlan) -> None:
    """The kernel asks each by itself: none takes advertisements or redirects, or passes on what is not for it."""
    asked = {key: value for key, value in _settings(node).items() if "*" in key}

    wrong = amiss(host, asked)
    assert not wrong, "; ".join(wrong)


@pytest.mark.parametrize("about", ["kernel", "fs", "dev"])
def test_the_kernel_keeps_programs_apart(host: Host, node: NodePlan, about: str) -> None:
    """Programs do not see the kernel's addresses, other people's memory, or what a link in a shared folder hides."""
    wrong = amiss(host, _about(node, about))
    assert not wrong, "; ".join(wrong)


@concerns(lambda node: not node.duties & FORWARDERS)
def test_packets_are_passed_on_only_where_they_are_to_pass(host: Host, node: NodePlan) -> None:
    """A machine that is no gateway and carries no pods forwards nothing; a workbench, for its containers alone."""
    families = ("net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding")
    # Docker turns the first on, and the packet filter then says for whom.
    asked = families[1:] if node.duties & HOSTS else families

    told = [host.run(f"cat /proc/sys/{each}").stdout.strip() for each in asked]
    assert set(told) <= {"0", ""}


def test_modules_may_still_be_loaded(host: Host) -> None:
    """The kernel takes modules: drivers of GPUs and fabrics come after the boot."""
    assert host.run("cat /proc/sys/kernel/modules_disabled").stdout.strip() in {"", "0"}


def test_memory_that_holds_data_runs_nothing(host: Host) -> None:
    """The processor marks pages that are no program; every one of Arm's does."""
    arm = host.check_output("uname -m") == "aarch64"

    assert arm or " nx " in f"{host.check_output('grep -m1 ^flags /proc/cpuinfo')} "


def _settings(node: NodePlan) -> Mapping[str, str]:
    return dict(role.values(role.settings(node.duties, fabric=node.gpus is not None)))


def _about(node: NodePlan, about: str) -> Mapping[str, str]:
    return {key: value for key, value in _settings(node).items() if key.startswith(f"{about}.") and "*" not in key}
