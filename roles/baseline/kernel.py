"""Settings of the kernel for work: buffers of fast networks, watched files, memory; never what keeps strangers out."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pyinfra.context import host
from pyinfra.operations import server
from pyinfra.operations.util import any_changed

from roles.base import Changes
from roles.shipped import Shipped
from roles.sysctl import Settable

_FILE = "/etc/sysctl.d/60-bedplate.conf"


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting, its value as the kernel shows it, and why it is not the kernel's own."""

    key: str
    value: str
    reason: str


EVERYWHERE = (
    Setting("kernel.panic", "10", "a machine that panicked comes back by itself"),
    Setting("net.core.rmem_max", "67108864", "one connection fills a link of 10 Gbit/s over 50 ms"),
    Setting("net.core.wmem_max", "67108864", "as above"),
    Setting("net.ipv4.tcp_rmem", "4096 131072 67108864", "as above; small connections stay small"),
    Setting("net.ipv4.tcp_wmem", "4096 65536 67108864", "as above"),
    Setting("net.ipv4.tcp_mtu_probing", "1", "tunnels carry less than the VPC's 9001 bytes, and may drop what says so"),
)
AT_WORK = (
    Setting("fs.inotify.max_user_instances", "8192", "editors and notebooks of many people on one machine"),
    Setting("fs.inotify.max_user_watches", "1048576", "as above"),
    Setting("kernel.numa_balancing", "0", "moving pages under a GPU's pinned memory costs and gains nothing"),
    Setting("vm.max_map_count", "1048576", "data sets mapped as thousands of files"),
    Setting("vm.swappiness", "1", "there is no swap, and page cache is what goes first"),
    Setting("vm.zone_reclaim_mode", "0", "remote memory is faster than reading a data set again"),
)


def kernel_file(settings: Iterable[Setting]) -> Shipped:
    """Return the file that sets them at each boot."""
    lines = "".join(f"# {each.reason}\n{each.key} = {each.value}\n" for each in settings)
    return Shipped("Kernel settings", _FILE, f"# Written by bedplate.\n{lines}")


def set_kernel(settings: Sequence[Setting], changes: Changes) -> None:
    """Declare that the settings hold now, whether the file or the running kernel was changed."""
    found = host.get_fact(Settable, keys=tuple(each.key for each in settings))
    drifted = any(found.get(each.key, each.value) != each.value for each in settings)
    answer = (lambda: True) if drifted else any_changed(*changes)
    server.shell(name="Kernel settings hold", commands=[f"/usr/lib/systemd/systemd-sysctl {_FILE}"], _if=answer)
