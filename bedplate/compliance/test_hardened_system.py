"""Every node: what is open to whom once they are in."""

from testinfra.host import Host

from bedplate.compliance.subject import is_contained
from roles.hardened.role import WANTED, wanted

_LIMIT = 3  # who, which, of what: the value comes behind
_OLD = (
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


def test_files_of_the_system_are_closed_to_others(host: Host) -> None:
    """What the system keeps to itself, nobody else reads or writes."""
    told = host.run(f"stat --format='%a %U %G %n' {' '.join(WANTED)} 2>/dev/null").stdout
    found = [line.split() for line in told.splitlines()]

    assert [path for mode, who, group, path in found if mode != wanted(path, group) or _is_strange(who, path)] == []
    listed = host.run(f"ls -ld {' '.join(WANTED)} 2>/dev/null").stdout.splitlines()
    # What has a list of access beside its mode.
    assert [line.split()[-1] for line in listed if line.split()[0].endswith("+")] == []


def test_ids_belong_to_one_each(host: Host) -> None:
    """No two accounts are one, and no two groups."""
    for table in ("passwd", "group"):
        ids = [line.split(":")[2] for line in host.file(f"/etc/{table}").content_string.splitlines() if line]
        assert len(ids) == len(set(ids)), table


def test_no_machine_or_file_speaks_for_a_person(host: Host) -> None:
    """There is no list of trusted machines, no .rhosts, and no .netrc of the system's; a person's own is theirs."""
    assert not host.file("/etc/hosts.equiv").exists
    names = r"\( -iname .rhosts -o -iname .netrc -not -path '/home/*' \)"
    found = host.run(f"find / -maxdepth 3 -xdev {names} -print").stdout
    assert found == ""


def test_programs_are_found_in_named_folders_alone(host: Host) -> None:
    """The folder that one stands in is not searched for programs."""
    parts = host.check_output("sh -lc 'echo $PATH'").split(":")

    assert "" not in parts
    assert "." not in parts


def test_logins_begin_as_the_fleet_wants(host: Host) -> None:
    """New files are closed, tries and time at a console are few, hashes slow, and no new account has a person's id."""
    text = host.file("/etc/login.defs").content_string
    found = dict(line.split(None, 1) for line in text.splitlines() if line and not line.startswith("#"))

    assert {
        key: found.get(key, "").strip()
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


def test_file_systems_that_nobody_needs_are_refused(host: Host) -> None:
    """A disk that somebody brings cannot reach code of the kernel that is seldom looked at."""
    text = host.file("/etc/modprobe.d/bedplate-hardened.conf").content_string

    for module in ("cramfs", "freevxfs", "hfs", "hfsplus", "jffs2", "usb-storage", "dccp", "sctp", "rds", "tipc"):
        assert f"install {module} /bin/true\nblacklist {module}\n" in text


def test_logs_are_the_system_s(host: Host) -> None:
    """Nobody but the system makes or removes a log."""
    folder = host.file("/var/log")

    assert folder.user == "root"
    assert folder.group in {"root", "syslog"}
    assert f"{folder.mode:o}" == wanted("/var/log", folder.group)


def test_only_root_says_what_runs_at_night(host: Host) -> None:
    """Nobody else leaves work to cron or at, which outlives their leave."""
    for path in ("/etc/cron.allow", "/etc/at.allow"):
        assert host.file(path).content_string == "root\n"
        assert host.file(path).mode == 0o600
    assert not host.file("/etc/cron.deny").exists


def test_nothing_of_anybody_elses_waits_for_the_night(host: Host) -> None:
    """What was left to cron or at before that was root's alone runs on, list or no list."""
    found = host.check_output("find /var/spool/cron -type f ! -user root ! -name .SEQ -print 2>/dev/null || true")
    tables = host.check_output("ls /var/spool/cron/crontabs 2>/dev/null || true").split()

    assert found == ""
    assert set(tables) <= {"root"}


def test_shared_memory_runs_nothing(host: Host) -> None:
    """Whatever is laid into shared memory is no program, no device, and nobody's rights; a boot keeps it so."""
    for options in (
        host.check_output("findmnt --noheadings --output OPTIONS /dev/shm"),
        host.check_output("awk '$2 == \"/dev/shm\" { print $4 }' /etc/fstab"),
    ):
        assert {"nosuid", "nodev", "noexec"} <= set(options.split(","))


def test_a_mount_that_everybody_writes_to_gives_no_rights(host: Host) -> None:
    """Where /tmp or /var/tmp is a mount of its own, no program there runs as another, and no device answers."""
    for path in ("/tmp", "/var/tmp"):  # noqa: S108  # the mounts themselves
        options = host.run(f"findmnt --noheadings --output OPTIONS {path}").stdout.strip()
        assert not options or {"nosuid", "nodev"} <= set(options.split(",")), path


def test_what_sends_passwords_in_the_clear_is_not_here(host: Host) -> None:
    """No server of another age is installed, and nothing rewrites programs behind their package's back."""
    asked = (
        f"dpkg-query --show --showformat='${{db:Status-Status}} ${{Package}}\\n' {' '.join(_OLD)} 2>/dev/null || true"
    )

    assert [line for line in host.check_output(asked).splitlines() if line.startswith("installed ")] == []


def test_programs_are_confined(host: Host) -> None:
    """AppArmor starts with the machine, and the machine's kernel, where it is its own and can, has the profiles."""
    assert host.service("apparmor").is_enabled
    if not is_contained(host) and host.file("/sys/module/apparmor").exists:
        assert host.run("aa-status --enabled").rc == 0, "the kernel confines nothing: `aa-status` says why"


def test_no_core_is_left_behind(host: Host) -> None:
    """A job that crashes leaves no copy of its memory on a disk that others read; the last word of all files counts."""
    told = host.check_output("cat /etc/security/limits.conf; cat /etc/security/limits.d/*.conf").splitlines()
    words = [line.partition("#")[0].split() for line in told]
    limits = {
        (who, kind, value)
        for who, kind, what, value, *_ in (each for each in words if len(each) > _LIMIT)
        if what == "core"
    }
    said = [
        line.partition("=")
        for line in host.check_output("systemd-analyze cat-config systemd/coredump.conf").splitlines()
    ]

    assert limits == {(who, kind, "0") for who in ("*", "root") for kind in ("hard", "soft")}
    assert [value.strip() for key, _, value in said if key.strip() == "Storage"][-1:] == ["none"]


def _is_strange(owner: str, path: str) -> bool:
    """Tell whether something of the system's belongs to somebody else; homes belong to whom they are called after."""
    return not path.startswith("/home/") and owner != "root"
