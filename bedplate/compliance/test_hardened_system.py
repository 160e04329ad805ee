"""Rules for every node: system files, IDs, scheduled jobs, mounts, AppArmor, and what runs with the rights of root."""

import re
import shlex
from collections.abc import Iterator
from pathlib import PurePosixPath

from testinfra.host import Host

from bedplate.compliance.settings import installed, is_container, unit_overrides
from roles.hardened.role import REQUIRED_MODES, required_mode

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


def _unknown_programs(host: Host, mode: str, known_programs: set[str]) -> list[str]:
    return _unknown(
        host, f"find {_DISKS} -xdev {_OUTSIDE_IMAGES} -type f -perm {mode} -print 2>/dev/null", known_programs
    )


def _unknown(host: Host, listing: str, known_programs: set[str]) -> list[str]:
    """Return the programs that a command lists and that are not known, not of a package, or changed since."""
    rows = [line.partition(" ") for line in host.check_output(f"{listing} | {_CLASSIFY}").splitlines()]
    return [
        path
        for origin, _, path in rows
        if path and (origin != "packaged" or PurePosixPath(path).name not in known_programs)
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


_FIELDS = 4  # of a line in limits.conf(5): domain, type, item, value
_INSECURE_PACKAGES = (
    "inetd",
    "openbsd-inetd",
    "xinetd",
    "telnetd",
    "rsh-server",
    "rsh-redone-server",
    "nis",
    "ypserv",
    "tftpd",
    "tftpd-hpa",
    "prelink",
)


def test_system_files_are_private(host: Host) -> None:
    """System files have safe modes and owners, and no access control lists."""
    output = host.run(f"stat --format='%a %U %G %n' {' '.join(REQUIRED_MODES)} 2>/dev/null").stdout
    rows = [line.split() for line in output.splitlines()]

    assert [
        path for mode, owner, group, path in rows if mode != required_mode(path, group) or _is_foreign(owner, path)
    ] == []
    listing = host.run(f"ls -ld {' '.join(REQUIRED_MODES)} 2>/dev/null").stdout.splitlines()
    # ls marks access control lists with a plus.
    assert [line.split()[-1] for line in listing if line.split()[0].endswith("+")] == []


def test_ids_are_unique(host: Host) -> None:
    """No two accounts and no two groups have the same ID."""
    for table in ("passwd", "group"):
        ids = [line.split(":")[2] for line in host.file(f"/etc/{table}").content_string.splitlines() if line]
        assert len(ids) == len(set(ids)), table


def test_no_trust_files_exist(host: Host) -> None:
    """/etc/hosts.equiv, .rhosts and system-wide .netrc files do not exist; a .netrc in a home is allowed."""
    assert not host.file("/etc/hosts.equiv").exists
    names = r"\( -iname .rhosts -o -iname .netrc -not -path '/home/*' \)"
    assert host.run(f"find / -maxdepth 3 -xdev {names} -print").stdout == ""


def test_path_has_no_current_folder(host: Host) -> None:
    """PATH does not contain the current folder."""
    folders = host.check_output("sh -lc 'echo $PATH'").split(":")

    assert "" not in folders
    assert "." not in folders


def test_login_defaults_are_safe(host: Host) -> None:
    """New files are private, console logins have few attempts, hashes are slow, and new accounts get no person's ID."""
    text = host.file("/etc/login.defs").content_string
    values = dict(line.split(None, 1) for line in text.splitlines() if line and not line.startswith("#"))

    assert {
        key: values.get(key, "").strip()
        for key in ("UMASK", "LOGIN_RETRIES", "LOGIN_TIMEOUT", "ENCRYPT_METHOD", "UID_MAX", "GID_MAX")
    } == {
        "UMASK": "027",
        "LOGIN_RETRIES": "3",
        "LOGIN_TIMEOUT": "60",
        "ENCRYPT_METHOD": "YESCRYPT",
        "UID_MAX": "19999",
        "GID_MAX": "19999",
    }
    assert host.check_output("bash -lc umask") == "0027"


def test_unused_kernel_modules_are_blocked(host: Host) -> None:
    """Rarely used file systems, USB storage and network protocols cannot be loaded."""
    text = host.file("/etc/modprobe.d/bedplate-hardened.conf").content_string

    systems, protocols = (
        ("cramfs", "freevxfs", "hfs", "hfsplus", "jffs2"),
        ("dccp", "sctp", "rds", "tipc", "smc", "rxrpc"),
    )
    for module in (*systems, "usb-storage", *protocols):
        assert f"install {module} /bin/true\nblacklist {module}\n" in text


def test_logs_belong_to_the_system(host: Host) -> None:
    """Only the system can create or remove logs."""
    folder = host.file("/var/log")

    assert folder.user == "root"
    assert folder.group in {"root", "syslog"}
    assert f"{folder.mode:o}" == required_mode("/var/log", folder.group)


def test_only_root_can_schedule_jobs(host: Host) -> None:
    """Only root can add cron and at jobs."""
    for path in ("/etc/cron.allow", "/etc/at.allow"):
        assert host.file(path).content_string == "root\n"
        assert host.file(path).mode == 0o600
    assert not host.file("/etc/cron.deny").exists


def test_no_jobs_of_other_users_are_scheduled(host: Host) -> None:
    """No cron or at job of another user exists; existing jobs run even if their owner is not in the allow list."""
    foreign = host.check_output("find /var/spool/cron -type f ! -user root ! -name .SEQ -print 2>/dev/null || true")
    tables = host.check_output("ls /var/spool/cron/crontabs 2>/dev/null || true").split()

    assert foreign == ""
    assert set(tables) <= {"root"}


def test_shared_memory_is_noexec(host: Host) -> None:
    """Shared memory (/dev/shm) is mounted nosuid, nodev and noexec, now and after a reboot."""
    for options in (
        host.check_output("findmnt --noheadings --output OPTIONS /dev/shm"),
        host.check_output("awk '$2 == \"/dev/shm\" { print $4 }' /etc/fstab"),
    ):
        assert {"nosuid", "nodev", "noexec"} <= set(options.split(","))


# File systems that the rules for setuid programs search, and those of the kernel, without files of users.
_NO_FILES = """ext2,ext3,ext4,xfs,btrfs,f2fs,zfs,tmpfs,overlay,autofs,binfmt_misc,bpf,cgroup,cgroup2,configfs,debugfs,\
devpts,devtmpfs,efivarfs,fusectl,hugetlbfs,mqueue,nfsd,nsfs,proc,pstore,rpc_pipefs,securityfs,sysfs,tracefs,vfat"""


def test_other_mounts_are_nosuid(host: Host) -> None:
    """Mounts that are not searched for setuid programs are nosuid, and the mounts /tmp and /var/tmp also nodev."""
    for path in ("/tmp", "/var/tmp"):  # noqa: S108  # the mount points themselves
        options = host.run(f"findmnt --noheadings --output OPTIONS {path}").stdout.strip()
        assert not options or {"nosuid", "nodev"} <= set(options.split(",")), path
    command = f"findmnt --list --noheadings --invert --types {_NO_FILES} --output OPTIONS,TARGET || true"
    rows = [line.split(None, 1) for line in host.check_output(command).splitlines()]
    # snapd mounts the snaps, which it verifies.
    suid = [path for options, path in rows if "nosuid" not in options.split(",") and not path.startswith("/snap/")]
    assert not suid, f"mounted without nosuid: {', '.join(suid)}"


# Prints the files that a running daemon of bedplate has not read since they changed. The dialer reads them each time.
_UNREAD = """systemctl list-units --plain --no-legend --state=running 'bedplate-*.service' | grep -v -e -dial.service |
while read -r unit _; do
since=$(systemctl show --timestamp=us+utc --property=StateChangeTimestamp --value "$unit")
files=$(systemctl show --property=ExecStart,Environment "$unit" | grep -oE '/etc/bedplate/[^] ;"]+' | sort -u)
[ -z "$files" ] || find $files -type f -newerct "$since"; done; true"""


def test_units_match_their_files(host: Host) -> None:
    """Units of bedplate have no drop-ins, and their daemons have read their present configuration files."""
    listing = "systemctl list-units --all --plain --no-legend 'bedplate-*' | cut -d ' ' -f 1"
    units = host.check_output(listing).split()

    assert unit_overrides(host, *units) == []
    assert host.check_output(_UNREAD) == ""


@installed
def test_insecure_services_are_not_installed(host: Host) -> None:
    """No server that uses unencrypted passwords is installed, and no prelink, which changes packaged programs."""
    form = "${db:Status-Status} ${Package}\\n"
    command = f"dpkg-query --show --showformat='{form}' {' '.join(_INSECURE_PACKAGES)} 2>/dev/null || true"

    assert [line for line in host.check_output(command).splitlines() if line.startswith("installed ")] == []


def test_apparmor_is_on(host: Host) -> None:
    """AppArmor is enabled, and active if the node's own kernel supports it."""
    assert host.service("apparmor").is_enabled
    if not is_container(host) and host.file("/sys/module/apparmor").exists:
        assert host.run("aa-status --enabled").rc == 0, "AppArmor is not active; see `aa-status`"


def test_core_dumps_are_off(host: Host) -> None:
    """Crashed jobs leave no core dumps for others to read; the last value in all files counts."""
    lines = host.check_output("cat /etc/security/limits.conf; cat /etc/security/limits.d/*.conf").splitlines()
    rows = [line.partition("#")[0].split() for line in lines]
    limits = {(row[0], row[1]): row[3] for row in rows if len(row) >= _FIELDS and row[2] == "core"}
    coredump = host.check_output("systemd-analyze cat-config systemd/coredump.conf").splitlines()
    settings = [line.partition("=") for line in coredump]

    assert limits == {(domain, kind): "0" for domain in ("*", "root") for kind in ("hard", "soft")}
    assert [value.strip() for key, _, value in settings if key.strip() == "Storage"][-1:] == ["none"]


def _is_foreign(owner: str, path: str) -> bool:
    """Return whether a system file does not belong to root; homes belong to their users."""
    return not path.startswith("/home/") and owner != "root"
