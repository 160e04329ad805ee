"""The role `guard`: a site's gateway forwards, and what is for a block behind another gateway leaves by no other way.

It makes no tunnel: those have keys, which no role writes. From here on what has no tunnel goes nowhere.
"""

from dataclasses import dataclass
from ipaddress import IPv4Network
from typing import ClassVar

from pyinfra.operations import server, systemd
from pyinfra.operations.util import any_changed

from roles.base import Changes, Role
from roles.packages import install
from roles.shipped import Shipped, ship
from roles.template import text_of
from vpn.sites.files import KERNEL, ground_of
from vpn.sites.rendered import RenderedFile

SERVICE = "bedplate-guard.service"
PACKAGES = (
    "charon-systemd",
    "frr",
    "libcharon-extra-plugins",
    "libstrongswan-standard-plugins",
    "nftables",
    "strongswan-swanctl",
)


@dataclass(frozen=True, slots=True)
class Guard(Role):
    """A gateway of a site; `elsewhere` are the blocks behind other gateways."""

    elsewhere: tuple[IPv4Network, ...]
    name: ClassVar[str] = "guard"

    def install(self) -> None:
        """Install the packet filter, and the daemons of tunnels."""
        install("Gateway of the site", PACKAGES)

    def configure(self) -> Changes:
        """Write the guard, the kernel's settings, and what gives tunnels their devices."""
        ground = (Shipped(file.path.name, str(file.path), file.text, f"{file.mode:o}") for file in self._ground())
        return ship(
            *ground, Shipped("Unit of the guard", f"/etc/systemd/system/{SERVICE}", text_of("guard/guard.service"))
        )

    def activate(self, changes: Changes) -> None:
        """Put up the guard before anything is forwarded; the distribution's own charon stays off."""
        new = any_changed(*changes)
        systemd.daemon_reload(name="Unit of the guard is read", _if=new)
        systemd.service(name="Guard of tunnels", service=SERVICE, running=True, enabled=True)
        systemd.service(name="Guard of tunnels reads its rules", service=SERVICE, reloaded=True, _if=new)
        server.shell(name="Site's packets pass", commands=[f"/usr/lib/systemd/systemd-sysctl {KERNEL}"], _if=new)
        systemd.service(name="No other charon", service="strongswan.service", running=False, enabled=False)

    def _ground(self) -> tuple[RenderedFile, ...]:
        return tuple(ground_of(self.elsewhere))
