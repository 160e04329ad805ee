"""A stand-in for AWS's ends of a site's tunnels on a machine whose kernel encrypts: a charon, and a device for each.

As aws_stand_in, and with its words; only who encrypts is another. Not AWS.
"""

from dataclasses import dataclass

from tests.support.aws_stand_in import bgp_of, connection_of
from tests.support.lab_router import LabRouter
from tests.support.netlab import LabHost
from tests.support.netlab_program import until
from vpn.sites.gateway import Gateway
from vpn.sites.tunnel import MTU, Tunnel

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
