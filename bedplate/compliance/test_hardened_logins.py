"""Rules for every node: sudo, su, PAM and passwords, and the kernel's audit of accounts, keys and privileges."""

import re

import pytest
from testinfra.host import Host

from bedplate.compliance.settings import account_entries, is_container, sudo_deviations, weakens_audit
from bedplate.foreign import parse_json
from roles.base import file_text
from roles.hardened import role
from roles.hardened.logins import SU_AUTH, SU_GROUP


def test_access_changes_are_audited(host: Host) -> None:
    """auditd records changes of accounts, keys, sudo rules and schedules; a full disk does not stop the node."""
    assert host.service("auditd").is_enabled
    rules = host.file(role.RULES).content_string.splitlines()
    assert [rule for rule in _planned_rules(host.check_output("uname -m"), "-w ") if rule not in rules] == []
    assert host.file(role.DAEMON).content_string == role.SETTINGS


def test_system_calls_of_all_programs_are_audited(host: Host) -> None:
    """The audit rules cover 64-bit and, on x86_64, also 32-bit programs."""
    machine = host.check_output("uname -m")
    rules = host.file(role.RULES).content_string.splitlines()

    assert [rule for rule in _planned_rules(machine, "-a ") if rule not in rules] == []
    keys = {arch: {rule.split()[-1] for rule in rules if f" arch={arch} " in rule} for arch in ("b64", "b32")}
    assert keys["b32"] == (keys["b64"] if machine == "x86_64" else set())


def test_audit_rules_are_loaded(host: Host) -> None:
    """auditd runs, and the kernel has loaded its rules."""
    _skip_in_container(host)
    assert host.service("auditd").is_running
    loaded = host.check_output("auditctl -l")
    assert "-w /etc/sudoers.d -p wa -k privilege" in loaded
    for rule in _planned_rules(host.check_output("uname -m"), "-a "):
        # auditctl prints system calls in another order.
        arch, key = rule.split(" -F ")[1].split()[0], rule.split()[-1]
        assert re.search(rf"^-a always,exit -F {arch} .*\bkey={key}$", loaded, re.MULTILINE), rule


def test_audit_rules_are_not_overridden(host: Host) -> None:
    """No other file stops the audit, deletes rules or excludes events."""
    lines = host.check_output("grep -Hn '' /etc/audit/rules.d/*.rules").splitlines()
    overrides = [line for line in lines if weakens_audit(line.split(":", 2)[2])]
    assert not overrides, f"overridden by {'; '.join(overrides)}"


def test_kernel_audit_is_on(host: Host) -> None:
    """The audit is on; loaded rules record nothing while it is off."""
    _skip_in_container(host)
    assert host.check_output("auditctl -s").splitlines()[0] in {"enabled 1", "enabled 2"}


def _planned_rules(machine: str, prefix: str) -> list[str]:
    """Return the planned audit rules with a prefix, for an architecture."""
    return [rule for rule in role.rules(machine).splitlines() if rule.startswith(prefix)]


def _skip_in_container(host: Host) -> None:
    if is_container(host):
        pytest.skip("a container shares the audit of its host")


# /dev/null replaces cvtsudoers' own configuration, which can filter the output.
_SUDOERS_JSON = "cvtsudoers -c /dev/null -f json /etc/sudoers"
_PLUGINS = r"grep -isE '^\s*(Plugin|Path\s+plugin_dir)\s' /etc/sudo.conf || true"


def test_sudo_logs_every_command(host: Host) -> None:
    """sudo writes each command, allowed or denied, to its log and to the journal, for every user and command."""
    assert host.run("visudo --check --quiet").succeeded
    deviations = sudo_deviations(parse_json(host.check_output(_SUDOERS_JSON)))
    assert not deviations, f"sudo does not log all commands: {'; '.join(deviations)}"


def test_sudo_has_no_plugins(host: Host) -> None:
    """/etc/sudo.conf loads no plugin, which could allow commands without the rules in /etc."""
    plugins = host.check_output(_PLUGINS)
    assert not plugins, f"/etc/sudo.conf loads a plugin: {plugins}"


def test_password_hashes_are_not_world_readable(host: Host) -> None:
    """/etc/passwd and /etc/group contain no password hashes."""
    assert {line.split(":")[1] for line in host.check_output("getent passwd").splitlines()} <= {"x", "*"}
    assert {fields[1] for fields in account_entries(host, "/etc/group")} <= {"x", "*", ""}


def test_failed_passwords_lock_the_account(host: Host) -> None:
    """After three wrong passwords, at a console or for sudo, the account is locked for 15 minutes."""
    text = host.file("/etc/pam.d/common-auth").content_string

    # Options in the PAM file override those in faillock.conf.
    for stage in ("preauth", "authfail"):
        assert re.search(rf"^auth\s.*\bpam_faillock\.so\s+{stage}\s*$", text, re.MULTILINE), stage
    assert host.file("/etc/security/faillock.conf").content_string == file_text("hardened/faillock.conf")


def test_password_quality_is_enforced(host: Host) -> None:
    """A new password must be long, have four kinds of characters, and differ from the last 24."""
    text = host.file("/etc/pam.d/common-password").content_string

    # The distribution's profile sets the number of attempts only.
    assert re.search(r"^password\s.*\bpam_pwquality\.so(\s+retry=\d+)?\s*$", text, re.MULTILINE)
    assert "remember=24" in text
    assert host.file("/etc/security/pwquality.conf").content_string == file_text("hardened/pwquality.conf")
    assert host.check_output("ls -A /etc/security/pwquality.conf.d 2>/dev/null || true") == ""


def test_su_is_only_for_root(host: Host) -> None:
    """Only root can use su; all others need sudo, which logs them."""
    assert _auth(host, "su") == ["auth sufficient pam_rootok.so", " ".join(SU_AUTH.split()), "@include common-auth"]
    assert host.check_output("getent group %s", SU_GROUP).endswith(":")


def test_pam_starts_with_the_lockout(host: Host) -> None:
    """No line of /etc/pam.d/common-auth precedes the role's profile, so none can bypass it."""
    first, *_ = _auth(host, "common-auth")
    assert first.endswith("pam_faillock.so preauth"), f"/etc/pam.d/common-auth begins with: {first}"


def _auth(host: Host, service: str) -> list[str]:
    """Return the lines of a PAM file that authenticate, including files other than the common ones."""
    lines = (" ".join(line.split()) for line in host.file(f"/etc/pam.d/{service}").content_string.splitlines())
    others = ("@include common-account", "@include common-password", "@include common-session")
    return [line for line in lines if re.match(r"(-?auth|@include) ", line, re.IGNORECASE) and line not in others]
