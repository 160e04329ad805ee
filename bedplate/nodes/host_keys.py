"""Host keys by which machines are known: lines of a public key, their fingerprints, and the file that ssh reads.

Only what the lock holds is ever trusted.
"""

import base64
import binascii
import hashlib
import re
import subprocess
from collections.abc import Collection, Iterable, Iterator, Mapping

from bedplate.errors import InputError, MachineError, PartError, ViolationError
from bedplate.plan.nodes import Duty, Ground, NodePlan

_SSHFP = re.compile(r"4 2 ([0-9a-f]{64})", re.ASCII | re.IGNORECASE)
FINGERPRINT = re.compile(r"SHA256:[A-Za-z0-9+/]{43}", re.ASCII)


def fingerprint(key: str) -> str:
    """Return the fingerprint of a public key, `SHA256:...`, as ssh-keygen prints it."""
    return _written(hashlib.sha256(base64.b64decode(key.split()[1])).digest())


def fingerprint_of_sshfp(text: str) -> str | None:
    """Return the fingerprint that an SSHFP record holds; None for any but an Ed25519 key's (4) by SHA-256 (2).

    Source: RFC 4255, RFC 6594, RFC 7479. SHA-1 proves nothing any more, and machines write no other key.
    """
    found = _SSHFP.fullmatch(text)
    return _written(bytes.fromhex(found[1])) if found else None


def fingerprint_of(text: str) -> str:
    """Return what an operator has read from a console, with or without its prefix; InputError for anything else."""
    whole = text if text.startswith("SHA256:") else f"SHA256:{text}"
    whole = whole.rstrip("=")
    if not FINGERPRINT.fullmatch(whole):
        fix = "read it at the machine's console: `ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub`"
        raise InputError(f"{text} is no fingerprint of a host key", fix=fix)
    return whole


def keys_of_scan(text: str) -> Iterator[str]:
    """Yield each key that ssh-keyscan printed, without the name before it."""
    for line in text.splitlines():
        words = line.split()
        if len(words) == 3 and not line.startswith("#") and _is_key(words[2]):  # noqa: PLR2004  host, kind, key
            yield f"{words[1]} {words[2]}"


def known_hosts(nodes: Iterable[NodePlan], keys: Mapping[str, tuple[str, ...]]) -> str:
    """Return the text of a known_hosts file: each machine that is known, under its full name and its fixed address.

    ssh looks for the name (HostKeyAlias); paramiko, which plain pyinfra uses, knows no alias.
    """
    return "".join(f"{_names(node)} {key}\n" for node in nodes for key in keys.get(node.name, ()))


def _written(digest: bytes) -> str:
    return "SHA256:" + base64.b64encode(digest).decode().rstrip("=")


def _names(node: NodePlan) -> str:
    return f"{node.full_name},{node.address}" if node.address else node.full_name


def _is_key(text: str) -> bool:
    try:
        return bool(base64.b64decode(text, validate=True))
    except binascii.Error:
        return False


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


def vouched(name: str, offered: Iterable[str], wanted: Collection[str], fix: str) -> str:
    """Return the key of those that a machine offers whose fingerprint is wanted. Raises ViolationError for none."""
    keys = {fingerprint(key): key for key in offered}
    for each in wanted:
        if each in keys:
            return keys[each]
    raise ViolationError(f"{name} does not offer the key {', '.join(wanted)}, but {', '.join(keys)}", fix=fix)


def tells_its_key(node: NodePlan) -> bool:
    """Return whether a machine writes its host key into the fleet's zone when it first starts."""
    return node.ground is Ground.CLOUD and Duty.WORKBENCH in node.duties


def introduction(node: NodePlan) -> str:
    """Return what to do so that the lock knows a machine's host key."""
    if tells_its_key(node):
        return f"`bedplate node trust {node.name}` asks AWS for it, and the machine"
    if Duty.WORKER in node.duties and node.ground is Ground.CLOUD:
        return "it has no name that could be recorded: name its key in a configuration of your own, --ssh-config"
    return f"read the fingerprint at its console, then `bedplate node trust {node.name} SHA256:...`"
