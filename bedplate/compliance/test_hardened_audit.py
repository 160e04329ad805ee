"""Every node: what is written down of whoever changes what gives access."""

import re

import pytest
from testinfra.host import Host

from bedplate.compliance.settings import takes_back
from bedplate.compliance.subject import is_contained
from roles.hardened import role


def test_changes_of_access_are_written_down(host: Host) -> None:
    """The audit tells who changed accounts, keys, rights and schedules; a full disk stops no work."""
    assert host.service("auditd").is_enabled
    found = host.file(role.RULES).content_string.splitlines()
    assert [line for line in _audited(host.check_output("uname -m"), "-w ") if line not in found] == []
    assert host.file(role.DAEMON).content_string == role.SETTINGS


def test_no_program_does_unseen_what_others_are_seen_to_do(host: Host) -> None:
    """Calls of the kernel are written down whoever makes them: on a processor that runs 32-bit programs, theirs too."""
    machine = host.check_output("uname -m")
    found = host.file(role.RULES).content_string.splitlines()

    assert [line for line in _audited(machine, "-a ") if line not in found] == []
    of = {bits: {line.split()[-1] for line in found if f" arch={bits} " in line} for bits in ("b64", "b32")}
    assert of["b32"] == (of["b64"] if machine == "x86_64" else set())


def test_the_kernel_has_the_rules_of_the_audit(host: Host) -> None:
    """The rules are loaded, wherever the kernel audits: in a container it does not."""
    _need_an_audit(host)
    assert host.service("auditd").is_running
    loaded = host.check_output("auditctl -l")
    assert "-w /etc/sudoers.d -p wa -k privilege" in loaded
    for line in _audited(host.check_output("uname -m"), "-a "):
        # Names of calls come in another order.
        arch, key = line.split(" -F ")[1].split()[0], line.split()[-1]
        assert re.search(rf"^-a always,exit -F {arch} .*\bkey={key}$", loaded, re.MULTILINE), line


def test_no_rule_of_another_file_takes_the_audit_back(host: Host) -> None:
    """None stops the audit, forgets rules that are loaded, or leaves out of the log what others put there."""
    lines = host.check_output("grep -Hn '' /etc/audit/rules.d/*.rules").splitlines()
    found = [line for line in lines if takes_back(line.split(":", 2)[2])]
    assert not found, f"taken back by {'; '.join(found)}"


def test_the_kernel_s_audit_is_on(host: Host) -> None:
    """Its rules write nothing down while it is off, by a command or by the line that the kernel was started with."""
    _need_an_audit(host)
    assert host.check_output("auditctl -s").splitlines()[0] in {"enabled 1", "enabled 2"}


def _audited(machine: str, beginning: str) -> list[str]:
    """Return the rules of the audit that begin so, on a machine of this architecture."""
    return [line for line in role.rules(machine).splitlines() if line.startswith(beginning)]


def _need_an_audit(host: Host) -> None:
    if is_contained(host):
        pytest.skip("a container has no audit of its own")
