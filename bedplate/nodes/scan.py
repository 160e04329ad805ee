"""What host keys a machine offers to whoever asks, by OpenSSH's own ssh-keyscan: offered is not trusted."""

import subprocess

from bedplate.errors import MachineError, PartError
from bedplate.nodes.host_key import keys_of_scan

_SECONDS = 10


def offered_keys(address: str) -> tuple[str, ...]:
    """Return the Ed25519 keys that whoever answers at an address offers. Raises PartError where nobody does.

    The role `hardened` never touches that key; it offers no ECDSA key, and makes a short RSA key anew.
    """
    command = ("ssh-keyscan", "-T", str(_SECONDS), "-t", "ed25519", address)
    try:
        done = subprocess.run(command, errors="replace", capture_output=True, check=False, timeout=6 * _SECONDS)  # noqa: S603
    except FileNotFoundError:
        raise MachineError("there is no ssh-keyscan here", fix="install OpenSSH's client") from None
    except subprocess.TimeoutExpired:
        raise PartError(f"{address} does not answer to its end", fix="is the VPN open?") from None
    keys = tuple(keys_of_scan(done.stdout))
    if not keys:
        raise PartError(f"{address} offers no Ed25519 host key", fix="is it on, is sshd running, and is the VPN open?")
    return keys
