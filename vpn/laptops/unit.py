"""The units by which systemd runs a gateway's daemons: never as root, with the rights of a router and no more."""

from bedplate.plan.laptops import Transport
from vpn.laptops.server import STANDARD, Folders
from vpn.laptops.text import filled

USER = "openvpn"
# To make a network device and its routes, and to listen below 1024.
RIGHTS = ("CAP_NET_ADMIN", "CAP_NET_BIND_SERVICE")
SERVICE = "bedplate-laptops@.service"
# It starts a daemon once its keys are there: the list of revoked certificates is the last of them to come.
KEYED = "bedplate-laptops@.path"


def instance(transport: Transport) -> str:
    """Return the name of the unit that serves one transport."""
    return f"bedplate-laptops@{transport}.service"


def daemon_unit(folders: Folders = STANDARD) -> str:
    """Return the unit of a gateway's daemons, one instance a transport."""
    return filled("daemon.service.j2", folders=folders, user=USER, rights=RIGHTS)


def keyed_unit(folders: Folders = STANDARD) -> str:
    """Return the unit that waits for a gateway's keys."""
    return filled("keyed.path.j2", folders=folders)
