"""What time it is: AWS's own clock beside each machine of the cloud, the distribution's pool on sites."""

from pyinfra.context import host
from pyinfra.operations import systemd
from pyinfra.operations.util import any_changed

from bedplate.plan.node import Ground
from roles.base import Changes
from roles.container import Container
from roles.shipped import Shipped
from roles.template import rendered

# Amazon Time Sync, one hop from every instance and in no routing table. Source: EC2 user guide, "Set the time".
AMAZON = "169.254.169.123"
POOLS = {"Debian": "2.debian.pool.ntp.org", "Ubuntu": "ntp.ubuntu.com"}
SERVICE = "chrony"


def clock_file(ground: Ground, distribution: str) -> Shipped:
    """Return chrony's settings."""
    values = {"amazon": AMAZON if ground is Ground.CLOUD else None, "pool": POOLS[distribution]}
    return Shipped("Clock", "/etc/chrony/chrony.conf", rendered("baseline/chrony.conf.j2", **values))


def keep_time(changes: Changes) -> None:
    """Declare that chrony runs with these settings; a container may not set its host's clock."""
    runs = not host.get_fact(Container)
    systemd.service(name="Clock is kept", service=SERVICE, running=True if runs else None, enabled=True)
    if runs:
        systemd.service(name="Clock reads its settings", service=SERVICE, restarted=True, _if=any_changed(*changes))
