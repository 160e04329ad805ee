"""`python3 -m bedplate.programs.probe COMMAND`: run a command if this machine can still be reached.

The command confirms a change of sshd, of the packet filter, or of keys, which is reverted otherwise. An apply over SSH
confirms it by a new login; here sshd must answer at the machine's address with its own key, and the source of bundles
must be reachable.
"""

import os
import socket
import sys
from pathlib import Path

from .program import run

_KEY = Path("/etc/ssh/ssh_host_ed25519_key.pub")
_SECONDS = "5"
_FAILED = 255
_BOOTSTRAP = "/usr/local/lib/bedplate/bootstrap"
# No packet is sent. Source: RFC 5737, a block for documentation.
_ELSEWHERE = ("192.0.2.1", 9)


def own_address() -> str:
    """Return the address from which this machine reaches others."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(_ELSEWHERE)
        return str(probe.getsockname()[0])


def answers_with_own_key() -> bool:
    """Return whether sshd answers with the host key of this machine."""
    scanned = run("ssh-keyscan", "-T", _SECONDS, "-t", "ed25519", own_address()).text
    keys = [line.split()[1:3] for line in scanned.splitlines() if not line.startswith("#")]
    return _KEY.read_text(encoding="utf-8").split()[:2] in keys


def main(command: str) -> None:
    """Become the command; exit with the status of a failed login if the machine cannot be reached."""
    if not answers_with_own_key():
        sys.stderr.write("sshd does not answer with the key of this machine\n")
        sys.exit(_FAILED)
    if error := run(_BOOTSTRAP, "check_source").error:
        sys.stderr.write(f"the source of bundles cannot be reached: {error}\n")
        sys.exit(_FAILED)
    os.execvp("env", ("env", "--unset=PYTHONPATH", "sh", "-c", command))  # noqa: S606, S607  the command of an operation


if __name__ == "__main__":
    main(sys.argv[1])
