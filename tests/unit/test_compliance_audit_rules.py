"""Which lines of the kernel's audit take back what others say."""

import pytest

from roles.hardened import auditing
from tests.compliance.audit_rules import takes_back

# Debian's and Ubuntu's own file.
DISTRIBUTION = "## First rule - delete all\n-D\n\n-b 8192\n--backlog_wait_time 60000\n-f 1\n"


@pytest.mark.parametrize(
    "text",
    [
        auditing.rules("x86_64"),
        DISTRIBUTION,
        "-e 2\n",
        "-a exit,always -F arch=b64 -S execve\n-A always,user -F uid=0\n  # a word\n",
    ],
    ids=["ours", "distribution", "for ever", "more"],
)
def test_what_adds_is_let_pass(text: str) -> None:
    """More may be written down than the fleet asks for, and its rules may be shut in until the next boot."""
    assert [line for line in text.splitlines() if takes_back(line)] == []


@pytest.mark.parametrize(
    "line",
    [
        "-e 0",
        "-e0",
        " -D",
        "-D ",
        "-D -k identity",
        "-W /etc/shadow -p wa -k identity",
        "-d always,exit -F arch=b64 -S mount",
        "-a never,exit -F auid=1000",
        "-A exit,never -F dir=/etc",
        "-a always,exclude -F msgtype=SYSCALL",
        "-a never,user",
        "-r 1",
    ],
)
def test_what_takes_back_is_found(line: str) -> None:
    """Also one that augenrules leaves in its place for a space before it."""
    assert takes_back(line)
