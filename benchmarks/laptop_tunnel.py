"""The throughput of a laptop's tunnel with bedplate's settings, compared with a minimal OpenVPN configuration.

Both run in turns, so that the load of the machine affects both; the network without a tunnel is measured, too. The
target is 90 % of the minimal configuration, over UDP and over TCP. Needs root, OpenVPN and iperf3.
"""

import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median

from bedplate.plan.laptops import Transport
from tests.testlab.fleets.variants import GATEWAY_ADDRESS, HOME
from tests.testlab.network.laptops import NODE, LaptopLab
from tests.testlab.network.netlab import megabits
from vpn.laptops.server import LaptopKeys

MIN_SHARE, SECONDS, ROUNDS = 0.9, 3, 5
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
    """Return the minimal server configuration."""
    gateway, folders = lab.gateways[HOME].gateway, lab.gateways[HOME].folders
    block = gateway.block(transport)
    proto = "udp4" if transport is Transport.UDP else "tcp4-server"
    values = {"network": block.network_address, "mask": block.netmask, "settings": folders.settings}
    return _SERVER.format(proto=proto, port=transport.port, **values)


def bare_client(keys: LaptopKeys, transport: Transport) -> str:
    """Return the minimal client configuration."""
    proto = "udp4" if transport is Transport.UDP else "tcp4-client"
    return _CLIENT.format(proto=proto, public=GATEWAY_ADDRESS, port=transport.port, keys=keys)


@contextmanager
def product(transport: Transport) -> Iterator[LaptopLab]:
    """Run a gateway and a connected laptop with bedplate's settings and packet filter."""
    with LaptopLab("bench", ADA) as lab:
        lab.gateways[HOME].start(transport)
        lines = [line for line in lab.profile(ADA).splitlines() if not _is_other_remote(line, transport)]
        lab.laptops[ADA].connect("\n".join(lines) + "\n")
        lab.laptops[ADA].wait()
        yield lab


@contextmanager
def bare(transport: Transport) -> Iterator[LaptopLab]:
    """Run a gateway and a connected laptop with minimal settings and no packet filter."""
    with LaptopLab("bare", ADA) as lab:
        gateway = lab.gateways[HOME]
        gateway.host.run("nft", "delete", "table", "inet", "bedplate_laptops")
        Path(f"{gateway.folders.settings}/{transport}.conf").write_text(bare_server(lab, transport))
        gateway.start(transport)
        lab.laptops[ADA].connect(bare_client(lab.keys.laptop(ADA), transport))
        lab.laptops[ADA].wait()
        yield lab


def measured(transport: Transport) -> Mapping[str, list[float]]:
    """Return the throughput of the wire, the minimal configuration and bedplate in Mbit/s, one figure a round."""
    figures: dict[str, list[float]] = {"wire": [], "bare": [], "product": []}
    with ExitStack() as stack:
        ours, theirs = stack.enter_context(product(transport)), stack.enter_context(bare(transport))
        for _ in range(ROUNDS):
            figures["wire"].append(megabits(ours.laptops[ADA].host, ours.gateways[HOME].host, GATEWAY_ADDRESS, SECONDS))
            figures["bare"].append(megabits(theirs.laptops[ADA].host, theirs.node, NODE, SECONDS))
            figures["product"].append(megabits(ours.laptops[ADA].host, ours.node, NODE, SECONDS))
    return figures


def report(transport: Transport) -> float:
    """Print the figures of a transport; return the share of the minimal configuration's throughput."""
    figures = measured(transport)
    for name, values in figures.items():
        print(f"{transport}  {name:<10} {median(values):8.0f} Mbit/s  ({min(values):.0f} to {max(values):.0f})")
    share = median(ours / theirs for ours, theirs in zip(figures["product"], figures["bare"], strict=True))
    wire = median(figures["product"]) / median(figures["wire"])
    print(f"{transport}  {share:.0%} of the minimal configuration; {wire:.1%} of the wire")
    return share


def main() -> int:
    """Print the figures; return 1 if the target is missed."""
    return int(min(map(report, Transport)) < MIN_SHARE)


def _is_other_remote(line: str, transport: Transport) -> bool:
    return line.startswith("remote ") and line != f"remote {GATEWAY_ADDRESS} {transport.port} {transport}4"


if __name__ == "__main__":
    sys.exit(main())
