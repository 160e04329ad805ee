"""The role `guard`: a gateway of tunnels forwards, and what is for a block behind another leaves by no other way.

It makes no tunnel: those have keys, which no role writes (`bedplate vpn tunnels`). From here on what has no tunnel goes
nowhere.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Network
from typing import ClassVar

from pyinfra.api.exceptions import DeployError
from pyinfra.api.facts import FactBase
from pyinfra.context import host
from pyinfra.operations import server, systemd
from pyinfra.operations.util import any_changed

from roles.base import Changes, DiskSpace, Role
from roles.files import Shipped, ship, text_of
from roles.system import install
from vpn.sites.files import KERNEL, RenderedFile, ground_of

_MODULES = ("esp4", "xfrm_interface")


class KernelLacks(FactBase[tuple[str, ...]]):
    """The release of the node's kernel, then the modules for IPsec that it does not have."""

    default = tuple

    def command(self) -> str:
        """Ask what could be loaded; what is built in counts."""
        asked = f"for each in {' '.join(_MODULES)}; do modprobe --dry-run --quiet $each || echo $each; done"
        return f"uname -r; {asked}"

    def process(self, output: Iterable[str]) -> tuple[str, ...]:
        """Return the lines."""
        return tuple(line.strip() for line in output)


def check_kernel(lacks: tuple[str, ...]) -> None:
    """Raise DeployError where a module is missing."""
    if lacks[1:]:
        raise DeployError(
            f"the kernel has no module {' and '.join(lacks[1:])}, which tunnels need:"
            f" install linux-modules-extra-{lacks[0]} (Ubuntu) or another kernel"
        )


SERVICE = "bedplate-guard.service"
BGP_SERVICE = "frr.service"
BGP_DAEMONS = "/etc/frr/daemons"
# The distributions confine these two to the folders of their own.
CONFINED = ("charon-systemd", "swanctl")
PACKAGES = (
    "charon-systemd",
    "iputils-ping",
    "libstrongswan-standard-plugins",
    "nftables",
    "strongswan-swanctl",
)
BGP_PACKAGES = (
    "frr",
    "frr-pythontools",  # without it FRR takes new settings by a restart alone, and every route is gone meanwhile
)


@dataclass(frozen=True, slots=True)
class Guard(Role):
    """A gateway of tunnels; `elsewhere` are the blocks behind other gateways.

    `speaks_bgp` tells a site's gateway, which AWS tells its routes, from those whose routes follow from the plan.
    """

    elsewhere: tuple[IPv4Network, ...]
    speaks_bgp: bool
    name: ClassVar[str] = "guard"
    space: ClassVar[DiskSpace] = DiskSpace(programs=40, state=10)

    def install(self) -> None:
        """Install the packet filter, and the daemons of tunnels."""
        install("Gateway of tunnels", (*PACKAGES, *(BGP_PACKAGES if self.speaks_bgp else ())))

    def configure(self) -> Changes:
        """Write the guard, the kernel's settings, and what gives tunnels their devices."""
        ground = (Shipped(file.path.name, str(file.path), file.text, f"{file.mode:o}") for file in self._ground())
        unit = Shipped(f"Unit {SERVICE}", f"/etc/systemd/system/{SERVICE}", text_of("guard/guard.service"))
        daemons = Shipped("Daemons of FRR", BGP_DAEMONS, text_of("guard/frr-daemons"))
        bounds = (Shipped(f"Bounds of {name}", bounds_of(name), text_of("guard/apparmor")) for name in CONFINED)
        return ship(*bounds, *ground, unit, *((daemons,) if self.speaks_bgp else ()))

    def activate(self, changes: Changes) -> None:
        """Load the guard before anything is forwarded; the distribution's own charon stays off."""
        check_kernel(host.get_fact(KernelLacks))
        new = any_changed(*changes)
        server.shell(name="Bounds are read", commands=[_READ_BOUNDS], _if=any_changed(*changes[: len(CONFINED)]))
        systemd.daemon_reload(name="Units of the guard are read", _if=new)
        systemd.service(name="Guard of tunnels", service=SERVICE, running=True, enabled=True)
        systemd.service(name="Guard of tunnels reads its rules", service=SERVICE, reloaded=True, _if=new)
        server.shell(name="Tunnels are looked after by what is written now", commands=[_WATCH_ANEW], _if=new)
        server.shell(name="Packets pass", commands=[f"/usr/lib/systemd/systemd-sysctl {KERNEL}"], _if=new)
        systemd.service(name="No other charon", service="strongswan.service", running=False, enabled=False)
        if self.speaks_bgp:
            # The last that was written: a restart forgets every route that BGP told.
            _run_bgp(changes[-1:])

    def _ground(self) -> tuple[RenderedFile, ...]:
        return tuple(ground_of(self.elsewhere))


def bounds_of(name: str) -> str:
    """Return the file of what AppArmor lets a program do beside its profile."""
    return f"/etc/apparmor.d/local/usr.sbin.{name}"


# A gateway that has no tunnel yet has no such unit, which is no fault.
_WATCH_ANEW = "systemctl try-restart 'bedplate-ipsec-*-dial.service'"
# A kernel without AppArmor, as a container's, has nothing to read them into.
_READ_BOUNDS = (
    "[ ! -d /sys/kernel/security/apparmor ] || ! command -v apparmor_parser >/dev/null || apparmor_parser --replace "
    + " ".join(f"/etc/apparmor.d/usr.sbin.{name}" for name in CONFINED)
)


def _run_bgp(daemons: Changes) -> None:
    systemd.service(name="BGP", service=BGP_SERVICE, running=True, enabled=True)
    new = any_changed(*daemons)
    systemd.service(name="BGP by what is written now", service=BGP_SERVICE, restarted=True, _if=new)
