"""Every node: who may do what once they are in, and what is written down of it."""

from pathlib import PurePosixPath

import pytest
from testinfra.host import Host

from roles.hardened.modes import WANTED, wanted

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
_SYSTEM = tuple(("/", "usr", name) for name in ("bin", "sbin", "lib", "libexec"))
# What lies in images of containers is another system's, and becomes nobody here.
_IMAGES = ("/var/lib/docker", "/var/lib/containerd", "/var/lib/containers", "/var/lib/snapd")
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


def test_passwords_are_kept_apart(host: Host) -> None:
    """No password, not even its hash, stands in the file that everybody reads."""
    assert {line.split(":")[1] for line in host.check_output("getent passwd").splitlines()} <= {"x", "*"}


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
    """New files are closed to others, tries and time at a console are few, hashes of passwords are slow."""
    text = host.file("/etc/login.defs").content_string
    found = dict(line.split(None, 1) for line in text.splitlines() if line and not line.startswith("#"))

    assert {
        key: found.get(key, "").strip() for key in ("UMASK", "LOGIN_RETRIES", "LOGIN_TIMEOUT", "ENCRYPT_METHOD")
    } == {
        "UMASK": "027",
        "LOGIN_RETRIES": "3",
        "LOGIN_TIMEOUT": "60",
        "ENCRYPT_METHOD": "YESCRYPT",
    }
    assert host.check_output("bash -lc umask") == "0027"


def test_programs_that_become_root_are_known(host: Host) -> None:
    """No program but the distribution's own, in its own folders, runs as its owner, whoever starts it."""
    stores = " -o ".join(f"-path {path}" for path in _IMAGES)
    asked = rf"find / -xdev \( {stores} \) -prune -o -type f -perm -4000 -print 2>/dev/null || true"
    found = [PurePosixPath(line) for line in host.check_output(asked).splitlines()]

    assert [str(each) for each in found if each.name not in _SETUID or each.parts[:3] not in _SYSTEM] == []


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


def test_changes_of_access_are_written_down(host: Host) -> None:
    """The audit tells who changed accounts, keys, rights and schedules; a full disk stops no work."""
    assert host.service("auditd").is_enabled
    rules = host.file("/etc/audit/rules.d/50-bedplate.rules").content_string
    for path in ("/etc/passwd", "/etc/sudoers.d/", "/etc/ssh/", "/etc/cron.d/"):
        assert f"-w {path} -p wa" in rules
    daemon = host.file("/etc/audit/auditd.conf").content_string
    assert "max_log_file_action = ROTATE" in daemon
    assert "disk_full_action = ROTATE" in daemon


def test_the_kernel_has_the_rules_of_the_audit(host: Host) -> None:
    """The rules are loaded, wherever the kernel audits: in a container it does not."""
    if host.check_output("systemd-detect-virt --container || true") != "none":
        pytest.skip("a container has no audit of its own")
    assert host.service("auditd").is_running
    assert "-w /etc/sudoers.d -p wa -k privilege" in host.check_output("auditctl -l")


def test_programs_are_confined(host: Host) -> None:
    """AppArmor starts with the machine."""
    assert host.service("apparmor").is_enabled


def test_no_core_is_left_behind(host: Host) -> None:
    """A job that crashes leaves no copy of its memory on a disk that others read."""
    limits = host.file("/etc/security/limits.d/90-bedplate-core.conf").content_string.splitlines()

    assert {"* hard core 0", "root hard core 0"} <= set(limits)
    assert "Storage=none" in host.file("/etc/systemd/coredump.conf.d/bedplate.conf").content_string


def test_failed_passwords_are_counted(host: Host) -> None:
    """At a console, and for sudo, an account that failed three times is refused for a quarter of an hour."""
    text = host.file("/etc/pam.d/common-auth").content_string

    assert "pam_faillock.so preauth" in text
    assert "pam_faillock.so authfail" in text
    assert "deny = 3\nunlock_time = 900" in host.file("/etc/security/faillock.conf").content_string


def test_a_password_that_is_set_is_good(host: Host) -> None:
    """It is long, of four kinds of letters, and none of the last 24."""
    text = host.file("/etc/pam.d/common-password").content_string

    assert "pam_pwquality.so" in text
    assert "remember=24" in text
    assert "minlen = 14\nminclass = 4" in host.file("/etc/security/pwquality.conf").content_string


def test_nobody_becomes_another_but_by_sudo(host: Host) -> None:
    """Becoming another by su is root's: its group has no members; sudo says who it was, at a terminal of its own."""
    assert "pam_wheel.so use_uid group=sugroup" in host.file("/etc/pam.d/su").content_string
    assert host.check_output("getent group sugroup").endswith(":")
    text = host.file("/etc/sudoers.d/00-bedplate-hardened").content_string
    assert "Defaults use_pty" in text
    assert 'Defaults logfile="/var/log/sudo.log"' in text
    assert host.run("visudo --check --quiet").succeeded


def _is_strange(owner: str, path: str) -> bool:
    """Tell whether something of the system's belongs to somebody else; homes belong to whom they are called after."""
    return not path.startswith("/home/") and owner != "root"
