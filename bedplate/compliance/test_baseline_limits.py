"""Every node: its kernel's settings, what sessions and services may take, and that nothing is swapped to."""

import re

import pytest
from testinfra.host import Host

from bedplate.compliance.settings import amiss
from bedplate.compliance.subject import is_contained, on_duty
from bedplate.plan.nodes import Duty

# The words of a limit: of whom, hard or soft, of what, how much.
_LIMIT = 4


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("kernel.panic", "10"),
        ("net.core.rmem_max", "67108864"),
        ("net.core.wmem_max", "67108864"),
        ("net.ipv4.tcp_rmem", "4096 131072 67108864"),
        ("net.ipv4.tcp_wmem", "4096 65536 67108864"),
        ("net.ipv4.tcp_mtu_probing", "1"),
    ],
)
def test_the_kernel_is_set_for_fast_networks(host: Host, key: str, value: str) -> None:
    """Files set it at each boot, by their last word, and the running kernel obeys wherever this machine may set it."""
    wrong = amiss(host, {key: value})
    assert not wrong, "; ".join(wrong)


@on_duty(Duty.WORKBENCH, Duty.WORKER)
@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("fs.inotify.max_user_instances", "8192"),
        ("fs.inotify.max_user_watches", "1048576"),
        ("kernel.numa_balancing", "0"),
        ("vm.max_map_count", "1048576"),
        ("vm.swappiness", "1"),
        ("vm.zone_reclaim_mode", "0"),
    ],
)
def test_the_kernel_is_set_for_work(host: Host, key: str, value: str) -> None:
    """Where people's work runs, memory and watched files are for it."""
    wrong = amiss(host, {key: value})
    assert not wrong, "; ".join(wrong)


def test_sessions_may_lock_all_memory(host: Host) -> None:
    """RDMA registers memory by locking it, for root as for people."""
    limits = host.check_output("cat /etc/security/limits.conf /etc/security/limits.d/*.conf").splitlines()
    locks = [line.split() for line in limits if re.match(r"\s*[^#\s]+\s+(-|hard|soft)\s+memlock\s", line)]

    assert {who: value for who, _, _, value, *_ in locks} == {"*": "unlimited", "root": "unlimited"}


def test_sessions_may_open_many_files(host: Host) -> None:
    """Loaders of data open thousands, for root as for people; the last word of all files counts."""
    told = host.check_output("cat /etc/security/limits.conf; LC_ALL=C; cat /etc/security/limits.d/*.conf").splitlines()
    words = [line.partition("#")[0].split() for line in told]
    limits: dict[tuple[str, str], str] = {}
    for who, kind, _, value in (each for each in words if len(each) == _LIMIT and each[2] == "nofile"):
        limits |= {(who, which): value for which in (("soft", "hard") if kind == "-" else (kind,))}

    wanted = {"soft": "65536", "hard": "1048576"}
    assert limits == {(who, kind): value for who in ("*", "root") for kind, value in wanted.items()}


def test_services_may_lock_all_memory(host: Host) -> None:
    """What systemd starts has the same limit as what people start."""
    assert host.check_output("systemctl show --property DefaultLimitMEMLOCK --value") == "infinity"


def test_nothing_is_swapped_to(host: Host) -> None:
    """Memory that runs out ends the job that took it; a container's host keeps its own."""
    assert host.check_output("tail -n +2 /proc/swaps") == "" or is_contained(host)


def test_no_boot_turns_swap_on(host: Host) -> None:
    """Systemd may not start swap, and fstab names none."""
    assert host.file("/etc/systemd/system/swap.target").linked_to == "/dev/null"
    assert host.run("grep -Eq '^[^#]\\S*\\s+\\S+\\s+swap\\s' /etc/fstab").rc != 0
