"""A stand-in for AWS's end of a VPN connection: two outside addresses, a charon and a neighbour behind each.

Its text is written here by hand, after AWS's guide and not after the product: it allows what stacks/tunnel_options.py
allows, waits to be dialled, and takes everything. Behind it stands what would be a VPC. Not AWS: nothing that is found
with it says how AWS itself behaves.
"""

import signal
from dataclasses import dataclass, field
from ipaddress import IPv4Address

from tests.support.lab_router import LabRouter
from tests.support.netlab import LabHost
from tests.support.netlab_program import LabProgram, until
from tests.support.userspace import tun_device
from vpn.sites.gateway import Gateway
from vpn.sites.proof import SharedKey
from vpn.sites.tunnel import Tunnel

_SETTINGS = """charon-systemd {{
  load = random nonce openssl pem kdf hmac gcm drbg vici kernel-libipsec kernel-netlink socket-default
  port = {port}
  port_nat_t = {natt}
  plugins {{
    vici {{
      socket = {socket}
    }}
    kernel-libipsec {{
      allow_peer_ts = yes
    }}
    kernel-netlink {{
      fwmark = 0x41
    }}
  }}
  routing_table = 41000
  filelog {{
    log {{
      path = {log}
      default = 1
      flush_line = yes
    }}
  }}
}}
"""
_CONNECTION = """connections {{
  {name} {{
    version = 2
    proposals = {ike}
    {way}
    dpd_delay = 10s
    local {{
      auth = psk
      id = {own}
    }}
    remote {{
      auth = psk
      id = {site}
    }}
    children {{
      {name} {{
        local_ts = 0.0.0.0/0
        remote_ts = 0.0.0.0/0
        esp_proposals = {esp}
{device}      }}
    }}
  }}
}}
secrets {{
  ike-{name} {{
    id-1 = {own}
    id-2 = {site}
    secret = {key}
  }}
}}
"""
_GROUPS = ("ecp256", "ecp384", "ecp521")
_IKE = ",".join(f"aes256gcm16-prfsha{size}-{group}" for group in _GROUPS for size in (384, 512))
_ESP = ",".join(f"aes256gcm16-{group}" for group in _GROUPS)
_PORT = 7000


@dataclass
class AwsStandIn:
    """The host, and the charons by the number of their tunnel."""

    host: LabHost
    site: Gateway
    blocks: tuple[str, ...]
    first_port: int = _PORT
    daemons: dict[str, LabProgram] = field(default_factory=dict)

    def start(self) -> None:
        """Start both ends and the neighbour of the site."""
        self.hand_over()
        for number, tunnel in enumerate(self.site.tunnels):
            self.start_tunnel(number, tunnel)
        LabRouter(self.host).start(bgp_of(self.site, self.blocks))

    def hand_over(self) -> None:
        """Have each outside address reach its own charon."""
        self.host.load_rules(self._handover())

    def start_tunnel(self, number: int, tunnel: Tunnel) -> None:
        """Start AWS's end of one tunnel."""
        folder = self.host.folder / tunnel.name
        folder.mkdir(exist_ok=True)
        socket = folder / "vici"
        socket.unlink(missing_ok=True)
        ports = self._ports(number)
        text = _SETTINGS.format(port=ports[0], natt=ports[1], socket=f"unix://{socket}", log=folder / "log")
        (folder / "strongswan.conf").write_text(text)
        (folder / "swanctl.conf").write_text(connection_of(tunnel))
        env = {"STRONGSWAN_CONF": str(folder / "strongswan.conf"), "SWANCTL_DIR": str(folder)}
        daemon = self.host.start("/usr/sbin/charon-systemd", log=f"{tunnel.name}.out", env=env)
        until(socket.exists, 15, f"{tunnel.name} does not listen")
        device = tun_device(daemon)
        self.host.run("ip", "link", "set", device, "mtu", "1400", "up")
        assert tunnel.far.inside is not None
        self.host.run("ip", "address", "add", str(tunnel.far.inside), "dev", device)
        self.host.run("swanctl", "--load-all", "--noprompt", "--uri", f"unix://{socket}", env=env)
        self.daemons[tunnel.name] = daemon

    def lose(self, tunnel: Tunnel) -> None:
        """Let AWS's end of one tunnel go without a word."""
        self.daemons[tunnel.name].end(signal.SIGKILL)

    def _ports(self, number: int) -> tuple[int, int]:
        return self.first_port + 2 * number, self.first_port + 2 * number + 1

    def _handover(self) -> str:
        """Return rules by which each outside address is its own charon's."""
        into, out = "", ""
        for number, tunnel in enumerate(self.site.tunnels):
            for port, standard in zip(self._ports(number), (500, 4500), strict=True):
                outside = IPv4Address(tunnel.far.outside)
                into += f"ip daddr {outside} udp dport {standard} redirect to :{port}\n"
                out += f"udp sport {port} snat to {outside}:{standard}\n"
        return (
            f"table ip stand_in {{\nchain into {{ type nat hook prerouting priority -100;\n{into}}}\n"
            f"chain out {{ type nat hook postrouting priority 100;\n{out}}}\n}}\n"
        )


def connection_of(tunnel: Tunnel, device: int | None = None) -> str:
    """Return AWS's end of a tunnel as swanctl reads it; `device` is the id of the kernel's where that encrypts."""
    assert isinstance(tunnel.proof, SharedKey)
    return _CONNECTION.format(
        name=tunnel.name,
        ike=_IKE,
        esp=_ESP,
        way=f"local_addrs = {tunnel.far.outside}" if device else "encap = yes",
        device=f"        if_id_in = {device}\n        if_id_out = {device}\n" if device else "",
        own=tunnel.far.outside,
        site=tunnel.near.identity,
        key=tunnel.proof.text,
    )


def bgp_of(site: Gateway, blocks: tuple[str, ...]) -> str:
    """Return AWS's side of BGP: its proposals for time, and a network for each block of the fleet."""
    return bgp_with((site,), blocks)


def bgp_with(sites: tuple[Gateway, ...], blocks: tuple[str, ...]) -> str:
    """Return AWS's side of BGP for several sites, of each of which it tells the others."""
    (asn,) = {tunnel.asn for site in sites for tunnel in site.tunnels}
    peers = [(one.near.inside.ip, site.asn) for site in sites for one in site.tunnels if one.near.inside]
    lines = [f"router bgp {asn}", " no bgp ebgp-requires-policy", " no bgp network import-check"]
    for peer, number in peers:
        lines += [f" neighbor {peer} remote-as {number}", f" neighbor {peer} timers 10 30"]
    lines += [" address-family ipv4 unicast", *(f"  network {block}" for block in blocks), " exit-address-family"]
    return "\n".join([*lines, "exit", ""])
