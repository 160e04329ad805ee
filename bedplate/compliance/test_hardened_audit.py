"""Rules for every node: the kernel's audit records changes of accounts, keys and privileges."""

import re

import pytest
from testinfra.host import Host

from bedplate.compliance.settings import weakens_audit
from bedplate.compliance.subject import is_container
from roles.hardened import role


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
