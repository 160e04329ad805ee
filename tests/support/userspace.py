"""IPsec in user space, for laboratories on a kernel without ESP: strongSwan's kernel-libipsec in place of XFRM.

The product's files stay as they are rendered. Charon reads settings that include the product's own, and its TUN device
has the name of the XFRM interface that the product expects as an alternative name. kernel-libipsec cannot tell two
tunnels apart that both take everything, so each tunnel has its own charon, on ports of its own.
"""

from collections.abc import Mapping
from ipaddress import IPv4Address
from pathlib import Path, PurePath

from tests.support.netlab import LabHost
from tests.support.netlab_program import LabProgram, until

IKE = (500, 4500)
_FIRST_PORT = 10_000
# Routes that kernel-libipsec installs by itself go to a table that no packet is sent to.
_SETTINGS = """include {product}
charon-systemd {{
  load = {plugins}
  port = {ports[0]}
  port_nat_t = {ports[1]}
  routing_table = 45000
  routing_table_prio = 45000
  plugins {{
    kernel-libipsec {{
      allow_peer_ts = yes
    }}
    kernel-netlink {{
      fwmark = 0x62656470
    }}
  }}
}}
"""
# Loaded before a peer dials: a packet that came before the handover must not decide where later ones go.
FORGETFUL = """table inet lab_dialling
delete table inet lab_dialling
table inet lab_dialling {
  ct timeout dialling { protocol udp; l3proto ip; policy = { unreplied : 1, replied : 60 }; }
  chain dialled { type filter hook prerouting priority -150; udp dport { 500, 4500 } ct timeout set "dialling"; }
}
"""
_HANDOVER = """table inet lab_handover
delete table inet lab_handover
table inet lab_handover {{
  chain in {{ type nat hook prerouting priority -100; {into} }}
  chain out {{ type nat hook postrouting priority 100; {out} }}
}}
"""
_LAST_RULES = "\t\tlimit rate 10/minute"


def ports_of(number: int) -> tuple[int, int]:
    """Return the ports of one of several charons."""
    return _FIRST_PORT + 2 * number, _FIRST_PORT + 2 * number + 1


def settings_over(product: PurePath, text: str, ports: tuple[int, int] = IKE) -> str:
    """Return settings for charon that load kernel-libipsec, over the product's with this text."""
    (plugins,) = (line.partition(" = ")[2] for line in text.splitlines() if "kernel-netlink" in line)
    plugins = plugins.replace("kernel-netlink", "kernel-libipsec kernel-netlink")
    return _SETTINGS.format(product=product, plugins=plugins, ports=ports)


def handover(peers: Mapping[IPv4Address, tuple[int, int]]) -> str:
    """Return nftables rules that give each charon its peer's packets; all seem to send from the ports of IKE."""
    into, out = "", ""
    for peer, ports in peers.items():
        for own, standard in zip(ports, IKE, strict=True):
            into += f"ip saddr {peer} udp dport {standard} redirect to :{own}; "
            out += f"ip daddr {peer} udp sport {own} masquerade to :{standard}; "
    return _HANDOVER.format(into=into, out=out)


def with_handover(rules: str) -> str:
    """Return the packet filter of a node that lets in what was handed over."""
    return rules.replace(_LAST_RULES, f"\t\tmeta l4proto udp ct status dnat accept\n{_LAST_RULES}", 1)


def tun_device(daemon: LabProgram) -> str:
    """Return the TUN device that a charon holds open; empty before it has one."""
    infos = [each.read_text() for each in Path(f"/proc/{daemon.pid}/fdinfo").iterdir()]
    return next((line.split()[1] for text in infos for line in text.splitlines() if line.startswith("iff:")), "")


def name_device(host: LabHost, daemon: LabProgram, name: str) -> None:
    """Give a charon's TUN device another name."""
    until(lambda: bool(tun_device(daemon)), 15, "charon has no TUN device")
    host.run("ip", "link", "property", "add", "dev", tun_device(daemon), "altname", name)
