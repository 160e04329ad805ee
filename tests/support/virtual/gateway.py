"""The layers of a machine that may move to a kernel with ESP and then be a gateway: its packages, made once."""

import shutil
from pathlib import Path

from roles.guard.role import BGP_PACKAGES, PACKAGES
from tests.support.stand.layer import forget_identity, inside, kept
from tests.support.stand.mirror import APT_INSTALL
from tests.support.stand.overlay import mounted
from tests.support.virtual.kernel import with_kernel

# What the laboratory measures with, and what bounds its daemons.
_TOOLS = ("tcpdump", "apparmor")
# What a boot would start that no tunnel needs, and that takes seconds each. BGP starts with the tunnels; bounds are for
# whoever tries them to read, for a stand-in's daemons have their files elsewhere.
STOPPED = ("frr.service", "bedplate-vpn-metrics.timer", "apparmor.service")
MASKED = (
    *("systemd-logind.service", "systemd-user-sessions.service", "systemd-update-utmp.service"),
    *("systemd-modules-load.service", "systemd-sysusers.service", "systemd-journal-flush.service"),
    *("systemd-random-seed.service", "remote-fs.target", "nfs-client.target"),
    *(f"modprobe@{module}.service" for module in ("dm_mod", "configfs", "drm", "efi_pstore", "fuse", "loop")),
    *("sys-kernel-tracing.mount", "sys-kernel-debug.mount", "dev-hugepages.mount", "dev-mqueue.mount"),
    *("run-rpc_pipefs.mount", "rpc-statd-notify.service", "nfs-idmapd.service"),
    *("apt-daily.timer", "apt-daily-upgrade.timer", "dpkg-db-backup.timer", "fstrim.timer", "e2scrub_all.timer"),
)


def with_tunnels() -> tuple[Path, ...]:
    """Return the layers, the uppermost first; makes what is missing (a minute)."""
    below = with_kernel()
    packages = (*PACKAGES, *BGP_PACKAGES, *_TOOLS)
    return (kept("gateway", repr((below, packages)), lambda root: _make(root, below, packages)), *below)


def _make(root: Path, below: tuple[Path, ...], packages: tuple[str, ...]) -> None:
    scratch = root.with_suffix(".scratch")
    with mounted(below, scratch) as whole:
        inside(whole, *APT_INSTALL, *packages)
        inside(whole, "systemctl", "disable", "--quiet", "strongswan", "frr")
        forget_identity(whole)
    root.rmdir()
    (scratch / "upper").rename(root)
    shutil.rmtree(scratch)
