"""Rules for every node: setuid and setgid programs, file capabilities, and what else runs as root."""

import re
import shlex
from collections.abc import Iterator
from pathlib import PurePosixPath

from testinfra.host import Host

# The distribution's programs that need setuid.
_SETUID = {
    "at",
    "chfn",
    "chsh",
    "dbus-daemon-launch-helper",
    "fusermount",
    "fusermount3",
    "gpasswd",
    "mount",
    "mount.nfs",
    "newgidmap",
    "newgrp",
    "newuidmap",
    "nvidia-modprobe",
    "passwd",
    "pkexec",
    "polkit-agent-helper-1",
    "screen",
    "snap-confine",
    "ssh-keysign",
    "su",
    "sudo",
    "umount",
}
# Programs that need setgid: to read /etc/shadow, to write to terminals, to protect an agent's memory.
_SETGID = {
    "at",
    "bsd-write",
    "chage",
    "crontab",
    "dotlockfile",
    "expiry",
    "pam_extrausers_chkpwd",
    "plocate",
    "postdrop",
    "postqueue",
    "screen",
    "ssh-agent",
    "unix_chkpwd",
    "utempter",
    "wall",
    "write",
    "write.ul",
}
# The root disk and all other local disks; remote mounts are nosuid.
_DISKS = "/ $(findmnt --list --noheadings --output TARGET --types ext2,ext3,ext4,xfs,btrfs,f2fs,zfs,tmpfs)"
# Capabilities with which a program can become root, or any user of a file server; a clause without names means all.
# Source: cap_to_text(3).
_ROOT_CAPABILITIES = re.compile(
    "cap_(bpf|chown|dac_override|dac_read_search|fowner|mac_admin|mac_override|mknod|net_admin|net_raw|perfmon"
    r"|setfcap|setgid|setpcap|setuid|sys_admin|sys_boot|sys_module|sys_ptrace|sys_rawio)|\s=[eip]*[ep]"
)
# The distribution's programs that need them. With net_raw or net_admin, a program could pass the packet filter.
_CAPABLE = {"gst-ptp-helper", "mtr-packet", "newgidmap", "newuidmap", "ping", "snap-confine"}
# Container images contain other systems. They are skipped if only root can enter their folder.
_IMAGES = ("/var/lib/docker", "/var/lib/containerd", "/var/lib/containers", "/var/lib/snapd")
_IN_IMAGES = " -o ".join(f"-path {path} -o -path '{path}/*'" for path in _IMAGES)
_OUTSIDE_IMAGES = rf"\( {_IN_IMAGES} \) -type d -user root ! -perm -001 -prune -o"
# Prints for each path whether a package installed it with this content. Checksum files may use the old path /bin.
_CLASSIFY = """while read -r path; do sum=$(md5sum "$path" | cut -c1-32); at=${path#/}
if grep -qsxF -e "$sum  $at" -e "$sum  ${at#usr/}" /var/lib/dpkg/info/*.md5sums; then echo "packaged $path"
else echo "unknown $path"; fi; done"""


def test_setuid_programs_are_known(host: Host) -> None:
    """All setuid programs on local disks are unchanged files of the distribution."""
    assert _unknown_programs(host, "-4000", _SETUID) == []


def test_setgid_programs_are_known(host: Host) -> None:
    """All setgid programs on local disks are unchanged files of the distribution."""
    assert _unknown_programs(host, "-2000", _SETGID) == []


def test_capability_programs_are_known(host: Host) -> None:
    """All programs with capabilities that can make them root are unchanged files of the distribution."""
    programs = f"find {_DISKS} -xdev {_OUTSIDE_IMAGES} -type f -perm /111 -print0 2>/dev/null"
    lines = host.check_output(f"{programs} | xargs -0 getcap 2>/dev/null || true").splitlines()
    paths = " ".join(shlex.quote(line.split()[0]) for line in lines if _ROOT_CAPABILITIES.search(line))

    assert _unknown(host, f"printf '%s\\n' {paths}", _CAPABLE) == []


def _unknown_programs(host: Host, mode: str, known: set[str]) -> list[str]:
    return _unknown(host, f"find {_DISKS} -xdev {_OUTSIDE_IMAGES} -type f -perm {mode} -print 2>/dev/null", known)


def _unknown(host: Host, listing: str, known: set[str]) -> list[str]:
    """Return the programs that a command lists and that are not known, not of a package, or changed since."""
    rows = [line.partition(" ") for line in host.check_output(f"{listing} | {_CLASSIFY}").splitlines()]
    return [
        path for origin, _, path in rows if path and (origin != "packaged" or PurePosixPath(path).name not in known)
    ]


# Prints what root runs without a login: commands of units, jobs and PAM, and the handler of core dumps. Without `-a`
# the units that do not run now, such as those of timers, are left out.
_ROOT_RUNS = """systemctl show -a '*.service' --property=User,ExecStart,ExecStartPre,ExecStartPost,ExecReload,ExecStop
echo; cat /etc/crontab /etc/cron.d/* 2>/dev/null
find /etc/cron.hourly /etc/cron.daily /etc/cron.weekly /etc/cron.monthly /etc/rc.local -type f 2>/dev/null
grep -hs pam_exec /etc/pam.d/*; systemd-detect-virt --quiet --container || cat /proc/sys/kernel/core_pattern"""
_PATHS = re.compile(r"(?<![\w.$}/])(/[\w.+@/-]+)")
# Files of daemons, kernel interfaces and metrics, not programs.
_NO_PROGRAMS = ("/dev/", "/proc/", "/run/", "/sys/", "/var/lib/prometheus/node-exporter/", "/var/run/")
# Prints owner, group, mode and path of each file, and of the folders above it.
_STAT_ALL = """while read -r path; do
[ -f "$path" ] && while [ "$path" ]; do echo "$path"; path=${path%/*}; done; done |
sort -u | xargs -r -d '\\n' stat -L -c '%u %g %a %n' 2>/dev/null || true"""
# Programs of users other than root in the folders of PATH, or that others can write, and open engine sockets.
_OPEN_PROGRAMS = (
    "find -L $(sh -lc 'echo $PATH' | tr ':' ' ') -maxdepth 1 ! -type l"
    r" \( -uid +1 -o -perm -002 -o -perm -020 ! -group root \) 2>/dev/null;"
    r" find /run -maxdepth 3 -type s -perm -002 \( -name 'docker.sock' -o -name 'containerd.sock*' -o"
    r" -name 'podman.sock' -o -name 'crio.sock' \) 2>/dev/null; true"
)


def test_only_root_can_change_what_root_runs(host: Host) -> None:
    """Only root can change programs in PATH and of units, jobs, PAM and core dumps, or use a container engine's socket.

    Whoever can change one of them is root with its next start.
    """
    paths = sorted({path for path in _root_paths(host.check_output(_ROOT_RUNS)) if not path.startswith(_NO_PROGRAMS)})
    rows = host.check_output(f"printf '%s\\n' {' '.join(map(shlex.quote, paths))} | {_STAT_ALL}").splitlines()
    changeable = [line.split(" ", 3)[3] for line in rows if _is_changeable(line)]
    changeable += host.check_output(_OPEN_PROGRAMS).splitlines()

    assert not changeable, f"others than root can change: {', '.join(sorted(set(changeable)))}"


def _root_paths(text: str) -> Iterator[str]:
    """Yield the paths in commands; blocks of units that run as another user are skipped."""
    for block in text.split("\n\n"):
        user = re.search(r"^User=(.+)$", block, re.MULTILINE)
        if user is None or user[1] == "root":
            yield from _PATHS.findall(block)


def _is_changeable(line: str) -> bool:
    """Return whether others than root can change a file or folder, given as owner, group, mode and path."""
    owner, group, mode, _ = line.split(" ", 3)
    bits = int(mode, 8)
    is_sticky = bool(bits & 0o1000)
    return owner != "0" or bool(bits & 0o020 and group != "0") or bool(bits & 0o002 and not is_sticky)
