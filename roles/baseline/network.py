"""What systemd-networkd must not touch: the routes and rules of gateways, FRR, strongSwan and containers."""

from pyinfra.operations import server
from pyinfra.operations.util import any_changed

from roles.base import Changes
from roles.shipped import Shipped
from roles.template import text_of

NETWORKD = Shipped(
    "Settings of systemd-networkd", "/etc/systemd/networkd.conf.d/60-bedplate.conf", text_of("baseline/networkd.conf")
)


def restart_networkd(changes: Changes) -> None:
    """Declare that systemd-networkd, where it runs, has read its settings; addresses stay over a restart."""
    restart = "systemctl try-restart systemd-networkd.service"
    server.shell(name="Restart systemd-networkd", commands=[restart], _if=any_changed(*changes))
