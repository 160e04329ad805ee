"""Every node: what a password is worth, and who becomes another with or without one."""

import itertools
import re

from testinfra.host import Host

from roles.hardened.pam import admits, rules
from roles.template import text_of
from tests.compliance.accounts import entries

# By what somebody on a machine begins to be another.
_SERVICES = ("common-auth", "login", "other", "polkit-1", "sshd", "su", "su-l", "sudo", "sudo-i")
_SU_RULE, _MUST = ("pam_wheel.so", "use_uid group=sugroup"), (["required"], ["requisite"])


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
    """Becoming another by su is root's: its group has no members, and sudo says who it was."""
    before = itertools.takewhile(lambda rule: (rule.module, rule.words) != _SU_RULE, rules("su", _pam(host)))
    assert [rule.module for rule in before if rule.control != "requisite"] == ["pam_rootok.so"]
    assert [rule.control for rule in rules("su", _pam(host)) if rule.module == "pam_wheel.so"] in _MUST
    assert host.check_output("getent group sugroup").endswith(":")


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
