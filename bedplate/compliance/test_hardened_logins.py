"""Rules for every node: sudo, su, PAM and passwords."""

import json
import re

from testinfra.host import Host

from bedplate.compliance.settings import account_entries, sudo_deviations
from roles.base import file_text
from roles.hardened.logins import SU_AUTH, SU_GROUP

# /dev/null replaces cvtsudoers' own configuration, which can filter the output.
_SUDOERS_JSON = "cvtsudoers -c /dev/null -f json /etc/sudoers"
_PLUGINS = r"grep -isE '^\s*(Plugin|Path\s+plugin_dir)\s' /etc/sudo.conf || true"


def test_sudo_logs_every_command(host: Host) -> None:
    """sudo writes each command, allowed or denied, to its log and to the journal, for every user and command."""
    assert host.run("visudo --check --quiet").succeeded
    deviations = sudo_deviations(json.loads(host.check_output(_SUDOERS_JSON)))
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
