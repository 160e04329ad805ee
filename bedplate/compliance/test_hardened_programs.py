"""Rules for every node: setuid and setgid programs, and file capabilities, on all local disks."""

import re
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
# Capabilities with which a program can become root; a clause without names means all. Source: cap_to_text(3).
_ROOT_CAPABILITIES = re.compile(
    "cap_(chown|dac_override|dac_read_search|fowner|mknod|setfcap|setgid|setuid"
    r"|sys_admin|sys_boot|sys_module|sys_ptrace|sys_rawio)|\s=[eip]*[ep]"
)
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
    """No unknown program has capabilities that can make it root; file modes do not show capabilities."""
    programs = f"find {_DISKS} -xdev {_OUTSIDE_IMAGES} -type f -perm /111 -print0 2>/dev/null"
    lines = host.check_output(f"{programs} | xargs -0 getcap 2>/dev/null || true").splitlines()
    found = {line.split()[0] for line in lines if _ROOT_CAPABILITIES.search(line)}

    assert found <= {"/usr/bin/newgidmap", "/usr/bin/newuidmap", "/usr/lib/snapd/snap-confine"}


def _unknown_programs(host: Host, mode: str, known: set[str]) -> list[str]:
    """Return the programs with a mode that are not known, not from a package, or changed after installation."""
    command = f"find {_DISKS} -xdev {_OUTSIDE_IMAGES} -type f -perm {mode} -print 2>/dev/null | {_CLASSIFY}"
    rows = [line.partition(" ") for line in host.check_output(command).splitlines()]
    return [path for origin, _, path in rows if origin != "packaged" or PurePosixPath(path).name not in known]
