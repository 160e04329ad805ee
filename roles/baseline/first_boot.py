"""What the first boot of a cloud image may not undo at the next: a node's name and its hosts."""

from pyinfra.context import host
from pyinfra.facts.files import Directory

from roles.base import NO_CHANGES, Changes
from roles.shipped import Shipped, ship

_FOLDER = "/etc/cloud/cloud.cfg.d"
_KEEP = "# Written by bedplate.\npreserve_hostname: true\nmanage_etc_hosts: false\n"


def keep_names() -> Changes:
    """Declare that cloud-init leaves names alone, where there is one."""
    if not host.get_fact(Directory, path=_FOLDER):
        return NO_CHANGES
    return ship(Shipped("Names stay at a boot", f"{_FOLDER}/60_bedplate.cfg", _KEEP))
