"""Simulated AWS endpoints of a site's tunnels with kernel encryption, and AppArmor helpers for the gateway under test.

The configuration is that of tests/testlab/network/sites.py, with ESP in the kernel: one charon, and one XFRM interface
per tunnel.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from tests.testlab.network.gateways import LabRouter
from tests.testlab.network.netlab import LabError, LabHost, checked, until
from tests.testlab.network.sites import bgp_of, connection_of
from vpn.sites.gateway import MTU, Gateway, Tunnel

_SETTINGS = """charon-systemd {{
  load = random nonce openssl pem kdf hmac gcm drbg vici kernel-netlink socket-default
  install_routes = no
  plugins {{
    vici {{
      socket = {socket}
    }}
  }}
  filelog {{
    log {{
      path = {log}
      default = 1
      flush_line = yes
    }}
  }}
}}
"""


@dataclass
class AwsKernelEnd:
    """The remote endpoint of both tunnels of a site; BGP announces its `blocks`."""

    host: LabHost
    site: Gateway
    blocks: tuple[str, ...]

    def start(self) -> None:
        """Create the interface of each tunnel, and start charon and BGP."""
        folder = self.host.folder
        (folder / "strongswan.conf").write_text(_SETTINGS.format(socket=f"unix://{folder}/vici", log=folder / "log"))
        ends = enumerate(self.site.tunnels, start=1)
        (folder / "swanctl.conf").write_text("".join(connection_of(tunnel, number) for number, tunnel in ends))
        env = {"STRONGSWAN_CONF": str(folder / "strongswan.conf"), "SWANCTL_DIR": str(folder)}
        for number, tunnel in enumerate(self.site.tunnels, start=1):
            self._device(f"aws{number}", number, tunnel)
        self.host.start("/usr/sbin/charon-systemd", log="charon.out", env=env)
        until((folder / "vici").exists, 15, "the simulated AWS endpoint did not start charon")
        self.host.run("swanctl", "--load-all", "--noprompt", "--uri", f"unix://{folder}/vici", env=env)
        LabRouter(self.host).start(bgp_of(self.site, self.blocks))

    def lose(self, tunnel: Tunnel) -> None:
        """Drop all packets of one tunnel silently."""
        chains = (("input", "daddr"), ("output", "saddr"))
        rules = (
            f"chain {hook} {{ type filter hook {hook} priority -310; ip {side} {tunnel.far.outside} drop; }}\n"
            for hook, side in chains
        )
        self.host.load_rules("table inet lost {\n" + "".join(rules) + "}\n")

    def find(self) -> None:
        """Stop dropping packets."""
        self.host.run("nft", "delete", "table", "inet", "lost")

    def _device(self, name: str, number: int, tunnel: Tunnel) -> None:
        assert tunnel.far.inside is not None
        self.host.run("ip", "link", "add", name, "type", "xfrm", "if_id", str(number))
        self.host.run("ip", "link", "set", name, "mtu", str(MTU), "up")
        self.host.run("ip", "address", "add", str(tunnel.far.inside), "dev", name)


UNIT = "bedplate-ipsec-tunnels.service"
_PROFILES = Path("/etc/apparmor.d")
_NAMES = ("usr.sbin.charon-systemd", "usr.sbin.swanctl")
_DENIED = re.compile(r'apparmor="DENIED".*?profile="([^"]+)" name="([^"]+)"')


def enforce() -> None:
    """Set the AppArmor profiles of both programs to enforce mode; the kernel logs every denial."""
    # By default the kernel leaves out messages above ten in five seconds.
    checked(["sysctl", "--write", "kernel.printk_ratelimit=0"])
    for name in _NAMES:
        profile = _PROFILES / name
        profile.write_text(profile.read_text().replace("flags=(complain,", "flags=("))
    _reload()


def drop_additions() -> dict[str, str]:
    """Remove the role's additions to the profiles; return them by file name."""
    additions = {}
    for name in _NAMES:
        file = _PROFILES / "local" / name
        additions[name] = file.read_text()
        file.write_text("")
    _reload()
    return additions


def restore_additions(additions: dict[str, str]) -> None:
    """Restore the role's additions."""
    for name, text in additions.items():
        (_PROFILES / "local" / name).write_text(text)
    _reload()


def restart_charon() -> bool:
    """Restart the charon of the tunnels; return whether its unit started."""
    try:
        checked(["systemctl", "restart", UNIT], seconds=300)
    except LabError:
        return False
    return True


def confinement() -> str:
    """Return the AppArmor profile and mode of the tunnels' charon."""
    pid = checked(["systemctl", "show", "--property", "MainPID", "--value", UNIT]).strip()
    return Path(f"/proc/{pid}/attr/current").read_text().strip()


def denied(cursor: str) -> list[tuple[str, str]]:
    """Return profile and path of each denial after a journal cursor, without duplicates."""
    checked(["journalctl", "--sync"])
    log = checked(["journalctl", "--dmesg", "--output", "cat", "--after-cursor", cursor])
    return sorted(set(_DENIED.findall(log)))


def journal_cursor() -> str:
    """Return the cursor of the last journal entry."""
    return checked(["journalctl", "--lines", "1", "--show-cursor", "--quiet"]).rpartition("-- cursor: ")[2].strip()


def _reload() -> None:
    checked(["apparmor_parser", "--replace", *(str(_PROFILES / name) for name in _NAMES)], seconds=300)
