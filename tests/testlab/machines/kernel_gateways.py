"""A stand-in for AWS's ends of a site's tunnels on a machine whose kernel encrypts: a charon, and a device for each.

As aws_stand_in, and with its words; only who encrypts is another. Not AWS.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from tests.testlab.network.gateways import LabRouter
from tests.testlab.network.netlab import LabHost, LabTrouble, checked, until
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
    """The host at which both tunnels of a site end; `blocks` are what BGP tells of."""

    host: LabHost
    site: Gateway
    blocks: tuple[str, ...]

    def start(self) -> None:
        """Start the charon, give each tunnel its device, and start the neighbour of the site."""
        folder = self.host.folder
        (folder / "strongswan.conf").write_text(_SETTINGS.format(socket=f"unix://{folder}/vici", log=folder / "log"))
        ends = enumerate(self.site.tunnels, start=1)
        (folder / "swanctl.conf").write_text("".join(connection_of(tunnel, number) for number, tunnel in ends))
        env = {"STRONGSWAN_CONF": str(folder / "strongswan.conf"), "SWANCTL_DIR": str(folder)}
        for number, tunnel in enumerate(self.site.tunnels, start=1):
            self._device(f"aws{number}", number, tunnel)
        self.host.start("/usr/sbin/charon-systemd", log="charon.out", env=env)
        until((folder / "vici").exists, 15, "AWS's charon does not listen")
        self.host.run("swanctl", "--load-all", "--noprompt", "--uri", f"unix://{folder}/vici", env=env)
        LabRouter(self.host).start(bgp_of(self.site, self.blocks))

    def lose(self, tunnel: Tunnel) -> None:
        """Let the end of one tunnel go without a word."""
        chains = (("input", "daddr"), ("output", "saddr"))
        rules = (
            f"chain {hook} {{ type filter hook {hook} priority -310; ip {side} {tunnel.far.outside} drop; }}\n"
            for hook, side in chains
        )
        self.host.load_rules("table inet lost {\n" + "".join(rules) + "}\n")

    def find(self) -> None:
        """Let it be back."""
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
    """Have both programs refused from now on, as they start, what their profiles do not hold."""
    for name in _NAMES:
        profile = _PROFILES / name
        profile.write_text(profile.read_text().replace("flags=(complain,", "flags=("))
    _read()


def drop_additions() -> dict[str, str]:
    """Take away what the role added, and return it by the file's name."""
    taken = {}
    for name in _NAMES:
        file = _PROFILES / "local" / name
        taken[name] = file.read_text()
        file.write_text("")
    _read()
    return taken


def put_back(additions: dict[str, str]) -> None:
    """Add again what was taken."""
    for name, text in additions.items():
        (_PROFILES / "local" / name).write_text(text)
    _read()


def restarted() -> bool:
    """Start the tunnels' charon anew, and tell whether its unit says that it started."""
    try:
        checked(["systemctl", "restart", UNIT], seconds=300)
    except LabTrouble:
        return False
    return True


def standing() -> str:
    """Return the bounds in which the tunnels' charon runs, as the kernel names them."""
    pid = checked(["systemctl", "show", "--property", "MainPID", "--value", UNIT]).strip()
    return Path(f"/proc/{pid}/attr/current").read_text().strip()


def denied(cursor: str) -> list[tuple[str, str]]:
    """Return what was refused to whom since a place in the journal, each once."""
    told = checked(["journalctl", "--dmesg", "--output", "cat", "--after-cursor", cursor])
    return sorted(set(_DENIED.findall(told)))


def here() -> str:
    """Return the place in the journal that is its end now."""
    return checked(["journalctl", "--lines", "1", "--show-cursor", "--quiet"]).rpartition("-- cursor: ")[2].strip()


def _read() -> None:
    checked(["apparmor_parser", "--replace", *(str(_PROFILES / name) for name in _NAMES)], seconds=300)
