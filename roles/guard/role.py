"""The role `guard`: a tunnel gateway forwards packets, and drops packets for a remote network that has no tunnel.

It creates no tunnel: `bedplate vpn tunnels` does, because a role never writes keys.
"""

from dataclasses import dataclass
from ipaddress import IPv4Network
from typing import ClassVar

from pyinfra.api.exceptions import DeployError
from pyinfra.context import host
from pyinfra.operations import server, systemd

from roles.base import Changes, DiskSpace, ManagedFile, Role, changed, file_text, put_files, unit_files
from roles.system import SYSTEMD_SYSCTL, LinesFact, install_packages
from vpn.sites.files import SYSCTL_CONF, guard_files

_MODULES = ("esp4", "xfrm_interface")


class KernelLacks(LinesFact):
    """The release of the node's kernel, then its missing IPsec modules."""

    def command(self) -> str:
        """Check which modules are built in or can be loaded."""
        missing = f"for each in {' '.join(_MODULES)}; do modprobe --dry-run --quiet $each || echo $each; done"
        return f"uname -r; {missing}"


def check_kernel(lacks: tuple[str, ...]) -> None:
    """Raise DeployError if a module is missing."""
    if lacks[1:]:
        raise DeployError(
            f"kernel module missing for IPsec: {' and '.join(lacks[1:])};"
            f" install linux-modules-extra-{lacks[0]} (Ubuntu) or another kernel"
        )


SERVICE = "bedplate-guard.service"
BGP_SERVICE = "frr.service"
BGP_DAEMONS = "/etc/frr/daemons"
# The AppArmor profiles of these two must allow our folders.
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
    "frr-pythontools",  # for reloads; a restart of FRR removes all routes
)


@dataclass(frozen=True, slots=True)
class Guard(Role):
    """A tunnel gateway; `remote_blocks` are behind other gateways.

    `speaks_bgp`: a site's gateway gets its routes from AWS by BGP; other gateways have static routes from the plan.
    """

    remote_blocks: tuple[IPv4Network, ...]
    speaks_bgp: bool
    name: ClassVar[str] = "guard"
    space: ClassVar[DiskSpace] = DiskSpace(programs=40, state=10)

    def install(self) -> None:
        """Install nftables, strongSwan and FRR."""
        install_packages("Install strongSwan", (*PACKAGES, *(BGP_PACKAGES if self.speaks_bgp else ())))

    def configure(self) -> Changes:
        """Write the rules, sysctls, network devices and the configuration of the daemons."""
        rendered = (
            ManagedFile(f"Write {file.path}", str(file.path), file.text, f"{file.mode:o}")
            for file in guard_files(self.remote_blocks)
        )
        if self.speaks_bgp:
            # Debian 13's package creates the account with the default shell, /bin/sh.
            server.user(  # noqa: S604  # the login shell of the account
                name="Remove the shell of frr", user="frr", system=True, ensure_home=False, shell="/usr/sbin/nologin"
            )
        daemons = ManagedFile("Write the list of FRR daemons", BGP_DAEMONS, file_text("guard/frr-daemons"))
        profiles = (
            ManagedFile(f"Extend the AppArmor profile of {name}", bounds_of(name), file_text("guard/apparmor"))
            for name in CONFINED
        )
        return put_files(*profiles, *rendered, *unit_files("guard", SERVICE), *((daemons,) if self.speaks_bgp else ()))

    def activate(self, changes: Changes) -> None:
        """Load the rules before forwarding is enabled; disable the distribution's own strongSwan service."""
        check_kernel(host.get_fact(KernelLacks))
        has_changed = changed(changes)
        profiles = changed(changes, *map(bounds_of, CONFINED))
        server.shell(name="Reload AppArmor profiles of strongSwan", commands=[_RELOAD_PROFILES], _if=profiles)
        systemd.service(name="Start the tunnel guard", service=SERVICE, running=True, enabled=True)
        systemd.service(name="Reload the tunnel guard", service=SERVICE, reloaded=True, _if=has_changed)
        server.shell(name="Restart tunnel monitors", commands=[_RESTART_MONITORS], _if=has_changed)
        server.shell(
            name="Enable forwarding for tunnels", commands=[f"{SYSTEMD_SYSCTL} {SYSCTL_CONF}"], _if=has_changed
        )
        systemd.service(
            name="Disable the default strongSwan service", service="strongswan.service", running=False, enabled=False
        )
        if self.speaks_bgp:
            systemd.service(name="Start FRR", service=BGP_SERVICE, running=True, enabled=True)
            # A restart removes every BGP route: only after a change of the list of daemons.
            systemd.service(name="Restart FRR", service=BGP_SERVICE, restarted=True, _if=changed(changes, BGP_DAEMONS))


def bounds_of(name: str) -> str:
    """Return the file that extends a program's AppArmor profile."""
    return f"/etc/apparmor.d/local/usr.sbin.{name}"


# A gateway without tunnels has no such units, which is no error.
_RESTART_MONITORS = "systemctl try-restart 'bedplate-ipsec-*-dial.service'"
# Skipped on a kernel without AppArmor, as in a container.
_RELOAD_PROFILES = (
    "[ ! -d /sys/kernel/security/apparmor ] || ! command -v apparmor_parser >/dev/null || apparmor_parser --replace "
    + " ".join(f"/etc/apparmor.d/usr.sbin.{name}" for name in CONFINED)
)
