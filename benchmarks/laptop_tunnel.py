"""What a laptop's tunnel carries by the product's text, beside OpenVPN with the least that it needs written by hand.

Both in the same run, turn by turn, so that a busy machine is busy for both; also the plain wire, for the ratio. The
target is 90 % of the bare daemon, over UDP and over TCP. Needs root, OpenVPN and iperf3.
"""

import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median

from bedplate.plan.laptops import Transport
from tests.testlab.fleets.variants import HOME, LAPTOP_PLANS_PUBLIC
from tests.testlab.network.laptops import NODE, LaptopLab
from tests.testlab.network.netlab import megabits
from vpn.laptops.server import LaptopKeys

LEAST_SHARE, SECONDS, ROUNDS = 0.9, 3, 5
ADA = "ada.laptop"
_SERVER = """dev tun
proto {proto}
port {port}
topology subnet
server {network} {mask}
ca {settings}/ca.crt
cert {settings}/server.crt
key {settings}/server.key
dh none
push "route 10.64.0.0 255.255.0.0"
"""
_CLIENT = """client
dev tun
nobind
proto {proto}
remote {public} {port}
<ca>
{keys.trusted}</ca>
<cert>
{keys.certificate}</cert>
<key>
{keys.key}</key>
"""


def bare_server(lab: LaptopLab, transport: Transport) -> str:
    """Return the least that serves a laptop in the place of what is rendered."""
    gateway, folders = lab.gateways[HOME].gateway, lab.gateways[HOME].folders
    block = gateway.block(transport)
    proto = "udp4" if transport is Transport.UDP else "tcp4-server"
    where = {"network": block.network_address, "mask": block.netmask, "settings": folders.settings}
    return _SERVER.format(proto=proto, port=transport.port, **where)


def bare_client(keys: LaptopKeys, transport: Transport) -> str:
    """Return the least by which a laptop dials."""
    proto = "udp4" if transport is Transport.UDP else "tcp4-client"
    return _CLIENT.format(proto=proto, public=LAPTOP_PLANS_PUBLIC, port=transport.port, keys=keys)


@contextmanager
def product(transport: Transport) -> Iterator[LaptopLab]:
    """Give a laboratory with a laptop connected by the product's own text, behind its packet filter."""
    with LaptopLab("bench", ADA) as lab:
        lab.gateways[HOME].start(transport)
        others = [line for line in lab.profile(ADA).splitlines() if not _is_of_another(line, transport)]
        lab.laptops[ADA].connect("\n".join(others) + "\n")
        lab.laptops[ADA].wait()
        yield lab


@contextmanager
def bare(transport: Transport) -> Iterator[LaptopLab]:
    """Give the same laboratory with a laptop connected by hand, and no packet filter."""
    with LaptopLab("bare", ADA) as lab:
        gateway = lab.gateways[HOME]
        gateway.host.run("nft", "delete", "table", "inet", "bedplate_laptops")
        Path(f"{gateway.folders.settings}/{transport}.conf").write_text(bare_server(lab, transport))
        gateway.start(transport)
        lab.laptops[ADA].connect(bare_client(lab.keys.laptop(ADA), transport))
        lab.laptops[ADA].wait()
        yield lab


def measured(transport: Transport) -> Mapping[str, list[float]]:
    """Return what the wire, the bare daemon and the product carried, in Mbit/s, a figure a round."""
    figures: dict[str, list[float]] = {"wire": [], "bare": [], "product": []}
    with ExitStack() as stack:
        ours, theirs = stack.enter_context(product(transport)), stack.enter_context(bare(transport))
        for _ in range(ROUNDS):
            figures["wire"].append(
                megabits(ours.laptops[ADA].host, ours.gateways[HOME].host, LAPTOP_PLANS_PUBLIC, SECONDS)
            )
            figures["bare"].append(megabits(theirs.laptops[ADA].host, theirs.node, NODE, SECONDS))
            figures["product"].append(megabits(ours.laptops[ADA].host, ours.node, NODE, SECONDS))
    return figures


def told(transport: Transport) -> float:
    """Print the figures of a transport, and return the product's share of the bare daemon's."""
    figures = measured(transport)
    for name, found in figures.items():
        print(f"{transport}  {name:<10} {median(found):8.0f} Mbit/s  ({min(found):.0f} to {max(found):.0f})")
    share = median(one / other for one, other in zip(figures["product"], figures["bare"], strict=True))
    wire = median(figures["product"]) / median(figures["wire"])
    print(f"{transport}  {share:.0%} of the bare daemon; {wire:.1%} of the wire")
    return share


def main() -> int:
    """Print the figures; return 1 where the target is missed."""
    return int(min(map(told, Transport)) < LEAST_SHARE)


def _is_of_another(line: str, transport: Transport) -> bool:
    return line.startswith("remote ") and line != f"remote {LAPTOP_PLANS_PUBLIC} {transport.port} {transport}4"


if __name__ == "__main__":
    sys.exit(main())
