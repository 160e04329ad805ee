"""Every node: the programs that run as somebody else than who starts them, on every local disk."""

import re
from pathlib import PurePosixPath

from testinfra.host import Host

# Programs that run as their owner whoever starts them: those of the distribution that need it.
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
# Those that run as their group: to read what is shadow's, to write to others' terminals, to keep an agent to oneself.
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
# The root's own, and disks beside it: never what another machine serves, which gives no rights here (nosuid).
_DISKS = "/ $(findmnt --list --noheadings --output TARGET --types ext2,ext3,ext4,xfs,btrfs,f2fs,zfs,tmpfs)"
# Rights of root's that a program may have without being setuid, as far as one of them is enough to become root; a
# clause that names none means all. Source: cap_to_text(3).
_ALMIGHTY = re.compile(
    "cap_(chown|dac_override|dac_read_search|fowner|mknod|setfcap|setgid|setuid"
    r"|sys_admin|sys_boot|sys_module|sys_ptrace|sys_rawio)|\s=[eip]*[ep]"
)
# What lies in images of containers is another system's, and becomes nobody here, as far as nobody but root gets there.
_IMAGES = ("/var/lib/docker", "/var/lib/containerd", "/var/lib/containers", "/var/lib/snapd")
_AMONG_IMAGES = " -o ".join(f"-path {path} -o -path '{path}/*'" for path in _IMAGES)
_BESIDE_IMAGES = rf"\( {_AMONG_IMAGES} \) -type d -user root ! -perm -001 -prune -o"
# Says of each path whether a package brought it, and as it is now; sums have paths of before /bin became /usr/bin.
_UNPACKAGED = """while read -r path; do sum=$(md5sum "$path" | cut -c1-32); at=${path#/}
if grep -qsxF -e "$sum  $at" -e "$sum  ${at#usr/}" /var/lib/dpkg/info/*.md5sums; then echo "packaged $path"
else echo "strange $path"; fi; done"""


def test_programs_that_become_root_are_known(host: Host) -> None:
    """No program but the distribution's own, unchanged, runs as its owner, whoever starts it, on any local disk."""
    assert _strange(host, "-4000", _SETUID) == []


def test_programs_that_join_a_group_are_known(host: Host) -> None:
    """No program but the distribution's own, unchanged, has its group's rights, on any local disk."""
    assert _strange(host, "-2000", _SETGID) == []


def test_programs_with_rights_of_roots_are_known(host: Host) -> None:
    """A capability of a file makes root of whoever starts it, as setuid does, and no mode shows it."""
    programs = f"find {_DISKS} -xdev {_BESIDE_IMAGES} -type f -perm /111 -print0 2>/dev/null"
    told = host.check_output(f"{programs} | xargs -0 getcap 2>/dev/null || true").splitlines()
    found = {line.split()[0] for line in told if _ALMIGHTY.search(line)}

    assert found <= {"/usr/bin/newgidmap", "/usr/bin/newuidmap", "/usr/lib/snapd/snap-confine"}


def _strange(host: Host, mode: str, known: set[str]) -> list[str]:
    """Return the programs of a mode that no package brought, that were changed since, or that nobody expects."""
    asked = f"find {_DISKS} -xdev {_BESIDE_IMAGES} -type f -perm {mode} -print 2>/dev/null | {_UNPACKAGED}"
    found = [line.partition(" ") for line in host.check_output(asked).splitlines()]
    return [path for told, _, path in found if told != "packaged" or PurePosixPath(path).name not in known]
