"""Every node: who may do what once they are in, and what is written down of it."""

import itertools
import re
from pathlib import PurePosixPath

import pytest
from testinfra.host import Host

from roles.hardened import auditing
from roles.hardened.modes import WANTED, wanted
from roles.hardened.pam import admits, rules
from tests.compliance.accounts import entries

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
# By what somebody on a machine begins to be another.
_SERVICES = ("common-auth", "login", "other", "polkit-1", "sshd", "su", "su-l", "sudo", "sudo-i")
_SU_RULE, _MUST = ("pam_wheel.so", "use_uid group=sugroup"), (["required"], ["requisite"])
# Says of each path whether a package brought it, and as it is now; sums have paths of before /bin became /usr/bin.
_UNPACKAGED = """while read -r path; do sum=$(md5sum "$path" | cut -c1-32); at=${path#/}
if grep -qsxF -e "$sum  $at" -e "$sum  ${at#usr/}" /var/lib/dpkg/info/*.md5sums; then echo "packaged $path"
else echo "strange $path"; fi; done"""
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


def test_passwords_are_kept_apart(host: Host) -> None:
    """No password, not even its hash, stands in the file that everybody reads."""
    assert {line.split(":")[1] for line in host.check_output("getent passwd").splitlines()} <= {"x", "*"}
    assert {fields[1] for fields in entries(host, "/etc/group")} <= {"x", "*", ""}


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


def test_changes_of_access_are_written_down(host: Host) -> None:
    """The audit tells who changed accounts, keys, rights and schedules; a full disk stops no work."""
    assert host.service("auditd").is_enabled
    found = host.file(auditing.RULES).content_string.splitlines()
    assert [line for line in _audited(host.check_output("uname -m"), "-w ") if line not in found] == []
    daemon = host.file("/etc/audit/auditd.conf").content_string
    assert "max_log_file_action = ROTATE" in daemon
    assert "disk_full_action = ROTATE" in daemon


def test_no_program_does_unseen_what_others_are_seen_to_do(host: Host) -> None:
    """Calls of the kernel are written down whoever makes them: on a processor that runs 32-bit programs, theirs too."""
    machine = host.check_output("uname -m")
    found = host.file(auditing.RULES).content_string.splitlines()

    assert [line for line in _audited(machine, "-a ") if line not in found] == []
    of = {bits: {line.split()[-1] for line in found if f" arch={bits} " in line} for bits in ("b64", "b32")}
    assert of["b32"] == (of["b64"] if machine == "x86_64" else set())


def test_the_kernel_has_the_rules_of_the_audit(host: Host) -> None:
    """The rules are loaded, wherever the kernel audits: in a container it does not."""
    if host.check_output("systemd-detect-virt --container || true") != "none":
        pytest.skip("a container has no audit of its own")
    assert host.service("auditd").is_running
    loaded = host.check_output("auditctl -l")
    assert "-w /etc/sudoers.d -p wa -k privilege" in loaded
    for line in _audited(host.check_output("uname -m"), "-a "):
        # Names of calls come in another order.
        arch, key = line.split(" -F ")[1].split()[0], line.split()[-1]
        assert re.search(rf"^-a always,exit -F {arch} .*\bkey={key}$", loaded, re.MULTILINE), line


def test_programs_are_confined(host: Host) -> None:
    """AppArmor starts with the machine, and the machine's kernel, where it is its own and can, has the profiles."""
    assert host.service("apparmor").is_enabled
    is_contained = host.run("systemd-detect-virt --quiet --container").rc == 0
    if not is_contained and host.file("/sys/module/apparmor").exists:
        assert host.run("aa-status --enabled").rc == 0, "the kernel confines nothing: `aa-status` says why"


def test_no_core_is_left_behind(host: Host) -> None:
    """A job that crashes leaves no copy of its memory on a disk that others read."""
    limits = host.file("/etc/security/limits.d/90-bedplate-core.conf").content_string.splitlines()

    assert {"* hard core 0", "root hard core 0"} <= set(limits)
    assert "Storage=none" in host.file("/etc/systemd/coredump.conf.d/bedplate.conf").content_string


def test_failed_passwords_are_counted(host: Host) -> None:
    """At a console, and for sudo, an account that failed three times is refused for a quarter of an hour."""
    text = host.file("/etc/pam.d/common-auth").content_string

    for moment in ("preauth", "authfail"):
        assert re.search(rf"^auth\s.*\bpam_faillock\.so\s+{moment}", text, re.MULTILINE), moment
    assert "deny = 3\nunlock_time = 900" in host.file("/etc/security/faillock.conf").content_string


def test_a_password_that_is_set_is_good(host: Host) -> None:
    """It is long, of four kinds of letters, and none of the last 24."""
    text = host.file("/etc/pam.d/common-password").content_string

    assert "pam_pwquality.so" in text
    assert "remember=24" in text
    assert "minlen = 14\nminclass = 4" in host.file("/etc/security/pwquality.conf").content_string


def test_nobody_becomes_another_but_by_sudo(host: Host) -> None:
    """Becoming another by su is root's: its group has no members; sudo says who it was, at a terminal of its own."""
    before = itertools.takewhile(lambda rule: (rule.module, rule.words) != _SU_RULE, rules("su", _pam(host)))
    assert [rule.module for rule in before if rule.control != "requisite"] == ["pam_rootok.so"]
    assert [rule.control for rule in rules("su", _pam(host)) if rule.module == "pam_wheel.so"] in _MUST
    assert host.check_output("getent group sugroup").endswith(":")
    text = host.file("/etc/sudoers.d/00-bedplate-hardened").content_string
    assert "Defaults use_pty" in text
    assert 'Defaults logfile="/var/log/sudo.log"' in text
    assert host.run("visudo --check --quiet").succeeded
    asked = r"grep -rsnE '^\s*Defaults.*!\s*(use_pty|logfile|syslog)' /etc/sudoers /etc/sudoers.d || true"
    assert host.check_output(asked) == ""


def test_nobody_becomes_another_without_being_asked(host: Host) -> None:
    """By su, sudo, a console or polkit: who knows nothing, and is not root, does not get through PAM."""
    texts = _pam(host)

    found = [service for service in _SERVICES if service in texts and admits(service, texts)]
    assert not found, f"PAM lets anybody become another by {', '.join(found)}"


def _pam(host: Host) -> dict[str, str]:
    """Return the text of each file of PAM, by its name; the machine's own goes before a package's."""
    asked = "for file in /usr/lib/pam.d/* /etc/pam.d/*; do [ ! -f $file ] || { echo == ${file##*/}; cat $file; }; done"
    found: dict[str, str] = {}
    name = ""
    for line in host.check_output(asked).splitlines():
        if line.startswith("== "):
            name = line.removeprefix("== ")
            found[name] = ""
        else:
            found[name] += f"{line}\n"
    return found


def _strange(host: Host, mode: str, known: set[str]) -> list[str]:
    """Return the programs of a mode that no package brought, that were changed since, or that nobody expects."""
    asked = f"find {_DISKS} -xdev {_BESIDE_IMAGES} -type f -perm {mode} -print 2>/dev/null | {_UNPACKAGED}"
    found = [line.partition(" ") for line in host.check_output(asked).splitlines()]
    return [path for told, _, path in found if told != "packaged" or PurePosixPath(path).name not in known]


def _audited(machine: str, beginning: str) -> list[str]:
    """Return the rules of the audit that begin so, on a machine of this architecture."""
    return [line for line in auditing.rules(machine).splitlines() if line.startswith(beginning)]


def _is_strange(owner: str, path: str) -> bool:
    """Tell whether something of the system's belongs to somebody else; homes belong to whom they are called after."""
    return not path.startswith("/home/") and owner != "root"
