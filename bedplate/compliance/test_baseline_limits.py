"""Rules for every node: sysctls, limits of sessions and services, and swap."""

import re

import pytest
from testinfra.host import Host

from bedplate.compliance.settings import sysctl_deviations
from bedplate.compliance.subject import applies_to, is_container
from bedplate.plan.nodes import NodeRole

# Fields of a line in limits.conf(5): domain, type, item, value.
_FIELDS = 4


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
def test_network_sysctls_are_set(host: Host, key: str, value: str) -> None:
    """Sysctls suit fast networks: the files set them at boot, and the running kernel has them where it can."""
    wrong = sysctl_deviations(host, {key: value})
    assert not wrong, "; ".join(wrong)


@applies_to(NodeRole.WORKBENCH, NodeRole.WORKER)
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
def test_compute_sysctls_are_set(host: Host, key: str, value: str) -> None:
    """Memory and file watch sysctls suit the work of people and pods."""
    wrong = sysctl_deviations(host, {key: value})
    assert not wrong, "; ".join(wrong)


def test_sessions_can_lock_all_memory(host: Host) -> None:
    """Sessions of root and of people have no memlock limit, because RDMA locks the memory that it registers."""
    limits = host.check_output("cat /etc/security/limits.conf /etc/security/limits.d/*.conf").splitlines()
    memlock = [line.split() for line in limits if re.match(r"\s*[^#\s]+\s+(-|hard|soft)\s+memlock\s", line)]

    assert {domain: value for domain, _, _, value, *_ in memlock} == {"*": "unlimited", "root": "unlimited"}


def test_sessions_can_open_many_files(host: Host) -> None:
    """Data loaders can open 65,536 files, at most 1,048,576; the last value in all files counts."""
    lines = host.check_output("cat /etc/security/limits.conf; LC_ALL=C; cat /etc/security/limits.d/*.conf").splitlines()
    rows = [line.partition("#")[0].split() for line in lines]
    limits: dict[tuple[str, str], str] = {}
    for domain, kind, _, value in (row for row in rows if len(row) == _FIELDS and row[2] == "nofile"):
        limits |= {(domain, level): value for level in (("soft", "hard") if kind == "-" else (kind,))}

    expected = {"soft": "65536", "hard": "1048576"}
    assert limits == {(domain, kind): value for domain in ("*", "root") for kind, value in expected.items()}


def test_services_can_lock_all_memory(host: Host) -> None:
    """systemd services have no memlock limit either."""
    assert host.check_output("systemctl show --property DefaultLimitMEMLOCK --value") == "infinity"


def test_swap_is_off(host: Host) -> None:
    """No swap is in use, so a job that exhausts memory ends; a container uses its host's memory."""
    assert host.check_output("tail -n +2 /proc/swaps") == "" or is_container(host)


def test_swap_stays_off_after_a_reboot(host: Host) -> None:
    """swap.target is masked, and /etc/fstab has no swap."""
    assert host.file("/etc/systemd/system/swap.target").linked_to == "/dev/null"
    assert host.run("grep -Eq '^[^#]\\S*\\s+\\S+\\s+swap\\s' /etc/fstab").rc != 0
