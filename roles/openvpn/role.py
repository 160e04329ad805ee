"""The role `openvpn`: daemons that serve laptops, and the packet filter between those and everybody else.

It writes no key: those come from the operator's machine by `bedplate vpn sync`, and start the daemons.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from pyinfra.operations import files, server, systemd
from pyinfra.operations.util import any_changed

from bedplate.plan.laptops import LaptopGateway, Transport
from roles.base import Changes, DiskSpace, Role
from roles.files import Shipped, ship, text_of
from roles.system import install
from vpn.laptops.server import (
    KEYED,
    SERVICE,
    STANDARD,
    USER,
    daemon_unit,
    guard_rules,
    instance,
    keyed_unit,
    server_conf,
)

_UNITS = "/etc/systemd/system"
GUARD = "bedplate-laptops-guard.service"
_SYSCTL = "/etc/sysctl.d/60-bedplate-laptops.conf"


@dataclass(frozen=True, slots=True)
class OpenVpn(Role):
    """A gateway of laptops; `gateway` is what the plan says of it."""

    gateway: LaptopGateway
    name: ClassVar[str] = "openvpn"
    space: ClassVar[DiskSpace] = DiskSpace(programs=8, state=4)

    def install(self) -> None:
        """Install the daemon, and what its packet filter and its certificates are read by."""
        install("Gateway of laptops", ("openvpn", "nftables", "openssl"))

    def configure(self) -> Changes:
        """Write settings, units and the packet filter; InputError where nobody is known who answers for names."""
        shipped = tuple(gateway_files(self.gateway))
        server.user(  # noqa: S604  # its shell is where a login would end, not a way to run commands
            name="Account of the daemons",
            user=USER,
            system=True,
            home="/nonexistent",
            shell="/usr/sbin/nologin",
        )
        files.directory(name="Folder of the gateway", path=str(STANDARD.settings), user="root", group=USER, mode="750")
        return ship(*shipped)

    def activate(self, changes: Changes) -> None:
        """Load the packet filter first; then daemons start, or start anew, where they have keys."""
        new = any_changed(*changes)
        systemd.daemon_reload(name="Units of the gateway are read", _if=new)
        server.shell(name="Packets pass", commands=[f"/usr/lib/systemd/systemd-sysctl {_SYSCTL}"], _if=new)
        systemd.service(name="Guard of laptops", service=GUARD, running=True, enabled=True)
        systemd.service(name="Guard of laptops reads its rules", service=GUARD, reloaded=True, _if=new)
        for transport in Transport:
            keyed = instance(transport).replace(".service", ".path")
            systemd.service(name=f"Keys start laptops over {transport}", service=keyed, running=True, enabled=True)
            systemd.service(
                name=f"Laptops over {transport} at boot", service=instance(transport), running=None, enabled=True
            )
            server.shell(
                name=f"Laptops over {transport} by what is written now",
                commands=[f"systemctl restart {instance(transport)}"],
                _if=new,
            )


def gateway_files(gateway: LaptopGateway) -> Iterator[Shipped]:
    """Yield every file of a gateway; InputError where nobody is known who answers for names."""
    for transport in Transport:
        yield Shipped(
            f"Laptops over {transport}", f"{STANDARD.settings}/{transport}.conf", server_conf(gateway, transport)
        )
    yield Shipped("Rules of the guard", f"{STANDARD.settings}/guard.nft", guard_rules(gateway))
    yield Shipped("Unit of the daemons", f"{_UNITS}/{SERVICE}", daemon_unit())
    yield Shipped("Unit that waits for keys", f"{_UNITS}/{KEYED}", keyed_unit())
    yield Shipped("Unit of the guard", f"{_UNITS}/{GUARD}", text_of("openvpn/guard.service"))
    yield Shipped("Packets pass through", _SYSCTL, text_of("openvpn/sysctl.conf"))
