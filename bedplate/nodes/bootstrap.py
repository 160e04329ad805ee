"""The script that makes a fresh machine of a site one that can be configured over SSH.

It lies beside this file and is shipped as it stands; what differs are the quoted words before it. It holds no secret.
"""

from pathlib import Path
from shlex import quote

from bedplate.errors import InputError
from bedplate.nodes.deployer import FIRST
from bedplate.plan.first_keys import MARK, admin_keys
from bedplate.plan.node import Ground, NodePlan

_SCRIPT = Path(__file__).with_suffix(".sh")


def bootstrap(node: NodePlan) -> str:
    """Return the script of a machine. Raises InputError for one of the cloud, or where nobody could log in."""
    if node.ground is Ground.CLOUD:
        raise InputError(
            f"{node.name} is a machine of the cloud", fix="its group starts it, and its first boot names it"
        )
    keys = admin_keys(node.accounts)
    if not keys:
        raise InputError("the fleet file has no administrator", fix="give somebody under `people` `admin: true`")
    words = {"NAME": node.name, "FULL_NAME": node.full_name, "ACCOUNT": FIRST, "MARK": MARK, "KEYS": "\n".join(keys)}
    head = (f"{name}={quote(value)}" for name, value in words.items())
    return "\n".join(("#!/bin/sh", *head, _SCRIPT.read_text(encoding="utf-8")))
