"""Rules for every node: system files, IDs, login defaults, scheduled jobs, mounts, AppArmor and core dumps."""

from testinfra.host import Host

from bedplate.compliance.settings import unit_overrides
from bedplate.compliance.subject import installed, is_container
from roles.hardened.role import REQUIRED_MODES, required_mode

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

    for module in ("cramfs", "freevxfs", "hfs", "hfsplus", "jffs2", "usb-storage", "dccp", "sctp", "rds", "tipc"):
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
