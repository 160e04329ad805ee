"""What keeps an apply from a node, in words for an operator, from what ssh, sudo, the shell and apt say.

Passes on the last lines of a failure at most, never what was sent.
"""

import re
from dataclasses import dataclass

from bedplate.nodes.event import Kind, Trouble

# apt's and dpkg's words, and debconf's, which pam-auth-update asks and which every package that is configured holds.
BUSY = (
    r"Could not get lock|Unable to acquire the dpkg frontend lock|dpkg frontend lock was locked"
    r"|\.dat(-new)? is locked by another process"
)
"""By which an operation is known that another program keeps from its packages: it is tried again for a while."""
BY_HAND = "log in there and mend what it says, then apply again: it goes on where it stopped"
_SHOWN_LINES, _SHOWN_WIDTH = 3, 200


@dataclass(frozen=True, slots=True)
class _Saying:
    pattern: str
    kind: Kind
    what: str
    fix: str


_LOGIN = (
    _Saying(
        "REMOTE HOST IDENTIFICATION HAS CHANGED",
        Kind.REFUSED,
        "its host key is not the recorded one: it is another machine, or was made anew, or somebody is in between",
        "compare with the machine's console; where it was made anew: `bedplate node trust {node} SHA256:... --replace`;"
        " a group's machine that people log in to: `bedplate node trust {node}`",
    ),
    _Saying(
        r"No .* host key is known|Host key verification failed",
        Kind.REFUSED,
        "its host key is not known",
        "read the fingerprint at its console, then `bedplate node trust {node} SHA256:...`",
    ),
    _Saying(
        "Too many authentication failures",
        Kind.UNREACHED,
        "it takes three keys a login, and the agent offered as many others first",
        "name the key by --identity FILE, and have ssh offer no other: `IdentitiesOnly yes` in ~/.ssh/config",
    ),
    _Saying(
        r"Permission denied \(",
        Kind.UNREACHED,
        "it does not let this account in",
        "name another by --user, or a key by --identity; "
        "a fresh machine of the cloud knows administrators alone, one of a site `ubuntu`",
    ),
    _Saying(
        "Could not resolve hostname",
        Kind.UNREACHED,
        "its name does not resolve here",
        "open the VPN; `bedplate node list --live` tells which machines are there",
    ),
    _Saying(
        r"Connection (timed out|refused|reset)|No route to host|Network is unreachable|Operation timed out",
        Kind.UNREACHED,
        "it does not answer",
        "is it on, and is the VPN open? `bedplate reach` tells the path",
    ),
    _Saying(
        r"a (terminal|password) is required|no password was provided",
        Kind.UNREACHED,
        "sudo asks for a password",
        "let the account become root without one: `bedplate node bootstrap {node}` shows how",
    ),
    _Saying(
        "is not in the sudoers file|is not allowed to execute|may not run sudo",
        Kind.UNREACHED,
        "this account may not become root",
        "apply as an administrator, or name the first account by --user",
    ),
    _Saying("sudo: (command )?not found|sudo: No such file", Kind.UNREACHED, "it has no sudo", "install sudo there"),
    _Saying(r"python3: (command )?not found", Kind.UNREACHED, "it has no Python", "install python3 there"),
)
_WORK = (
    _Saying(
        r"Release file .* is not valid yet|certificate is not yet valid",
        Kind.FAILED,
        "its clock is behind",
        "set it (`date`; `chronyc makestep`), then apply again",
    ),
    _Saying(
        "No space left on device|Disk quota exceeded|You don't have enough free space in",
        Kind.FAILED,
        "its disk is full",
        "make room on it (`df -h` and `df -i` tell where), then apply again",
    ),
    _Saying(
        f"{BUSY}|is locked by another process",
        Kind.FAILED,
        "another program installs packages there, and did not end in time",
        "look who: `ps -C apt,apt-get,dpkg,dpkg-reconfigure,unattended-upgr`; then apply again",
    ),
    _Saying(
        "Temporary failure resolving|Could not connect to|Failed to fetch|Unable to connect to|Could not resolve '",
        Kind.FAILED,
        "it cannot reach a package archive",
        "look at its way out and at its apt sources, then apply again",
    ),
    _Saying(
        "No matching distribution found for",
        Kind.FAILED,
        "it cannot reach an index of Python's packages, or that one has not what is wanted",
        "look at its way out and at /etc/pip.conf, then apply again",
    ),
    _Saying(
        r"Sub-process /usr/bin/dpkg exited unexpectedly|Sub-process /usr/bin/dpkg received|dpkg was interrupted",
        Kind.FAILED,
        "the package manager ended in the middle of its work",
        "apply again: what is left is configured first",
    ),
    _Saying(
        "Unable to locate package|has no installation candidate",
        Kind.FAILED,
        "its package archives do not have what is wanted",
        "look at its apt sources, then apply again",
    ),
)


def login_trouble(node: str, said: str) -> Trouble:
    """Return why there is no way into a node, from what ssh and the far end said."""
    return _recognised(node, said, _LOGIN) or Trouble(
        Kind.UNREACHED, f"it cannot be logged in to: {_end(said) or 'nobody said why'}", "try it by hand: `ssh -v`"
    )


def silence(seconds: float) -> Trouble:
    """Return how a node is told that was asked something and did not answer for so many seconds."""
    what = f"it does not answer: it was asked something, and said nothing for {seconds:.0f} s"
    fix = "look what hangs there, by hand (`ps -ef`; often a disk, or a file server that is gone), then apply again"
    return Trouble(Kind.UNREACHED, what, fix)


def work_trouble(node: str, operation: str, said: str) -> Trouble:
    """Return why an operation failed on a node, from what its command said."""
    known = _recognised(node, said, _WORK)
    if known is None:
        return Trouble(Kind.FAILED, f"{operation}: {_end(said) or 'it failed without a word'}", BY_HAND)
    return Trouble(known.kind, f"{operation}: {known.what}", known.fix)


def _recognised(node: str, said: str, sayings: tuple[_Saying, ...]) -> Trouble | None:
    for each in sayings:
        if re.search(each.pattern, said):
            return Trouble(each.kind, each.what, each.fix.format(node=node))
    return None


def _end(said: str) -> str:
    # A node's own words steer nobody's terminal.
    plain = "".join(sign if sign.isprintable() or sign == "\n" else "?" for sign in said)
    lines = [line.strip() for line in plain.splitlines() if line.strip()]
    return " / ".join(lines[-_SHOWN_LINES:])[-_SHOWN_WIDTH:]
