"""Every node: that sudo tells of whoever becomes another by it."""

import json
import re

from testinfra.host import Host

from bedplate.compliance.settings import entries, hidden
from roles.files import text_of
from roles.hardened.logins import SU_AUTH, SU_GROUP

# A configuration of one's own may leave out what was asked for.
_READ = "cvtsudoers -c /dev/null -f json /etc/sudoers"
_PLUGGED = r"grep -isE '^\s*(Plugin|Path\s+plugin_dir)\s' /etc/sudo.conf || true"


def test_sudo_tells_who_becomes_another(host: Host) -> None:
    """In its log and in the journal, allowed or refused, at a terminal of its own, whoever it is, and for whatever."""
    assert host.run("visudo --check --quiet").succeeded
    found = hidden(json.loads(host.check_output(_READ)))
    assert not found, f"somebody is not told of: {'; '.join(found)}"


def test_sudo_is_the_distribution_s(host: Host) -> None:
    """No plugin of somebody's own decides in its place, or reads other rules than those in /etc."""
    found = host.check_output(_PLUGGED)
    assert not found, f"/etc/sudo.conf has another decide: {found}"


def test_passwords_are_kept_apart(host: Host) -> None:
    """No password, not even its hash, stands in the file that everybody reads."""
    assert {line.split(":")[1] for line in host.check_output("getent passwd").splitlines()} <= {"x", "*"}
    assert {fields[1] for fields in entries(host, "/etc/group")} <= {"x", "*", ""}


def test_failed_passwords_are_counted(host: Host) -> None:
    """At a console, and for sudo, an account that failed three times is refused for a quarter of an hour."""
    text = host.file("/etc/pam.d/common-auth").content_string

    # A word of the module's own goes before the file.
    for moment in ("preauth", "authfail"):
        assert re.search(rf"^auth\s.*\bpam_faillock\.so\s+{moment}\s*$", text, re.MULTILINE), moment
    assert host.file("/etc/security/faillock.conf").content_string == text_of("hardened/faillock.conf")


def test_a_password_that_is_set_is_good(host: Host) -> None:
    """It is long, of four kinds of letters, and none of the last 24."""
    text = host.file("/etc/pam.d/common-password").content_string

    # The distribution's own profile says how often somebody may try, and nothing of what is good.
    assert re.search(r"^password\s.*\bpam_pwquality\.so(\s+retry=\d+)?\s*$", text, re.MULTILINE)
    assert "remember=24" in text
    assert host.file("/etc/security/pwquality.conf").content_string == text_of("hardened/pwquality.conf")
    assert host.check_output("ls -A /etc/security/pwquality.conf.d 2>/dev/null || true") == ""


def test_nobody_becomes_another_but_by_sudo(host: Host) -> None:
    """Su is root's: all others are refused, for its group has no members; sudo logs who it was."""
    assert _auth(host, "su") == ["auth sufficient pam_rootok.so", " ".join(SU_AUTH.split()), "@include common-auth"]
    assert host.check_output("getent group %s", SU_GROUP).endswith(":")


def test_nobody_becomes_another_without_being_asked(host: Host) -> None:
    """No auth line of common-auth precedes the role's profile, which pam-auth-update places first."""
    first, *_ = _auth(host, "common-auth")
    assert first.endswith("pam_faillock.so preauth"), f"/etc/pam.d/common-auth begins with: {first}"


def _auth(host: Host, service: str) -> list[str]:
    """Return the lines of a file of PAM that decide who somebody is; other files than common ones count as such."""
    lines = (" ".join(line.split()) for line in host.file(f"/etc/pam.d/{service}").content_string.splitlines())
    others = ("@include common-account", "@include common-password", "@include common-session")
    return [line for line in lines if re.match(r"(-?auth|@include) ", line, re.IGNORECASE) and line not in others]
