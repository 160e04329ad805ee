"""What EC2 hands a machine to run when it first starts."""

from base64 import b64encode

from bedplate.errors import InputError

# Before it is put into base64. Source: EC2 user guide, "Run commands on your Linux instance at launch".
LIMIT_BYTES = 16_384


def encoded(machine: str, script: str) -> str:
    """Return the form in which a launch template takes a script.

    Raises InputError, naming the machine or pool, when EC2 would refuse to launch with it.
    """
    text = script.encode()
    if len(text) > LIMIT_BYTES:
        told = f"the first boot of {machine} takes {len(text):,} bytes of user data, and EC2 takes {LIMIT_BYTES:,}"
        raise InputError(told, fix="shorten what grows with the file: names, labels, taints")
    return b64encode(text).decode()
