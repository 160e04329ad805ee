"""The role `openvpn`: OpenVPN servers for laptops, their packet filter, and DNS in a fleet of one region.

It writes no keys: `bedplate vpn sync` writes them from the operator's machine, and they start the servers.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from pyinfra.operations import files, server, systemd

from bedplate.plan.laptops import LaptopGatewayPlan, Transport
from roles.base import UNITS, Changes, DiskSpace, ManagedFile, Role, changed, file_text, put_files, unit_files
from roles.system import SYSTEMD_SYSCTL, create_daemon_account, install_packages
from vpn.laptops.server import (
    DNS_UNIT,
    KEYS_PATH_UNIT,
    SERVICE,
    STANDARD,
    USER,
    daemon_unit,
    dns_unit,
    guard_rules,
    instance,
    keys_path_unit,
    server_conf,
)

GUARD = "bedplate-laptops-guard.service"
_SYSCTL = "/etc/sysctl.d/60-bedplate-laptops.conf"


@dataclass(frozen=True, slots=True)
class OpenVpn(Role):
    """A laptop gateway, as planned."""

    gateway: LaptopGatewayPlan
    name: ClassVar[str] = "openvpn"
    space: ClassVar[DiskSpace] = DiskSpace(programs=9, state=4)

    def install(self) -> None:
        """Install OpenVPN, nftables and OpenSSL, and dnsmasq without its service if the gateway forwards DNS."""
        forwarder = ("dnsmasq-base",) if self.gateway.upstream else ()
        install_packages("Install OpenVPN", ("openvpn", "nftables", "openssl", *forwarder))

    def configure(self) -> Changes:
        """Write configuration, units and the packet filter. Raises InputError if no name server is known."""
        files_to_put = tuple(gateway_files(self.gateway))
        create_daemon_account("Create the OpenVPN account", USER)
        files.directory(
            name="Create the OpenVPN folder", path=str(STANDARD.settings), user="root", group=USER, mode="750"
        )
        return put_files(*files_to_put)

    def activate(self, changes: Changes) -> None:
        """Load the packet filter, then start or restart the servers that have keys."""
        has_changed = changed(changes)
        server.shell(name="Enable forwarding for laptops", commands=[f"{SYSTEMD_SYSCTL} {_SYSCTL}"], _if=has_changed)
        systemd.service(name="Start the laptop packet filter", service=GUARD, running=True, enabled=True)
        systemd.service(name="Reload the laptop packet filter", service=GUARD, reloaded=True, _if=has_changed)
        self._run_dns(changes)
        for transport in Transport:
            keyed = instance(transport).replace(".service", ".path")
            systemd.service(
                name=f"Start OpenVPN when keys arrive ({transport})", service=keyed, running=True, enabled=True
            )
            systemd.service(
                name=f"Enable OpenVPN at boot ({transport})", service=instance(transport), running=None, enabled=True
            )
            server.shell(
                name=f"Restart OpenVPN ({transport})",
                commands=[f"systemctl restart {instance(transport)}"],
                _if=has_changed,
            )

    def _run_dns(self, changes: Changes) -> None:
        """Start the forwarder, or stop it after its fleet got resolver endpoints."""
        runs = self.gateway.upstream is not None
        systemd.service(
            name="Start DNS for laptops" if runs else "Stop DNS for laptops",
            service=DNS_UNIT,
            running=runs,
            enabled=runs,
        )
        if runs:
            is_new = changed(changes, f"{UNITS}/{DNS_UNIT}")
            systemd.service(name="Restart DNS for laptops", service=DNS_UNIT, restarted=True, _if=is_new)


def gateway_files(gateway: LaptopGatewayPlan) -> Iterator[ManagedFile]:
    """Yield every file of a gateway. Raises InputError if no name server is known."""
    for transport in Transport:
        yield ManagedFile(
            f"Configure OpenVPN ({transport})", f"{STANDARD.settings}/{transport}.conf", server_conf(gateway, transport)
        )
    yield ManagedFile("Write the laptop packet filter", f"{STANDARD.settings}/guard.nft", guard_rules(gateway))
    yield ManagedFile(f"Write {SERVICE}", f"{UNITS}/{SERVICE}", daemon_unit())
    if gateway.upstream:
        yield ManagedFile(f"Write {DNS_UNIT}", f"{UNITS}/{DNS_UNIT}", dns_unit(gateway))
    yield ManagedFile(f"Write {KEYS_PATH_UNIT}", f"{UNITS}/{KEYS_PATH_UNIT}", keys_path_unit())
    yield from unit_files("openvpn", GUARD)
    yield ManagedFile("Write sysctls of the laptop gateway", _SYSCTL, file_text("openvpn/sysctl.conf"))
