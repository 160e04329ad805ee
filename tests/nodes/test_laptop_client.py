"""A VPN profile imported by NetworkManager on a booted desktop, and connected."""

import re
import shlex
from collections.abc import Iterator
from ipaddress import IPv4Network

import pytest

from tests.testlab.fleets.variants import RESOLVERS, lab_gateways
from tests.testlab.machines.gateways import GATE, PUBLIC, LaptopGateways, open_device
from tests.testlab.machines.layers import APT_INSTALL
from tests.testlab.machines.node_lab import Node
from tests.testlab.run import documented_commands

pytestmark = pytest.mark.nightly

DEVICE, ADDRESS = "desktop", "192.168.43.9"
COMMANDS = tuple(line for line in documented_commands("vpn.md") if line.startswith("nmcli"))
IMPORT, SPLIT, UP = COMMANDS
INSTALL = f"DEBIAN_FRONTEND=noninteractive {shlex.join(APT_INSTALL)} network-manager-openvpn"
# On a desktop, NetworkManager controls the network.
OWN_NETWORK = (
    "nmcli connection add type ethernet ifname eth0 con-name own ipv6.method disabled ipv4.method manual "
    f"ipv4.addresses {ADDRESS}/32 ipv4.gateway %s && nmcli connection up own"
)


@pytest.fixture(scope="module")
def desktop(gateways: LaptopGateways) -> Iterator[Node]:
    """Yield a desktop with NetworkManager that has imported ada's profile as docs/vpn.md says."""
    gateways.local_vpn("add", "ada", "--device", DEVICE)
    assert gateways.vpn("sync").returncode == 0
    node = gateways.node_lab.boot("desktop", ADDRESS)
    open_device(node)
    node.run(INSTALL, seconds=300)
    node.run(OWN_NETWORK % gateways.node_lab.workstation.address)
    (node.root / "root/ada.ovpn").write_text(gateways.local_vpn("show", "ada", "--device", DEVICE))
    for command in (IMPORT, SPLIT):
        node.run(f"cd /root; {command}")
    yield node
    node.stop()
    assert gateways.vpn("revoke", "ada", "--device", DEVICE).returncode == 0


def test_profile_is_imported_completely(desktop: Node) -> None:
    """NetworkManager imports all gateways and all checks of the server's identity, and the key is private."""
    data = desktop.run("nmcli --get-values vpn.data connection show ada").replace("\\", "")

    assert all(f"{PUBLIC}:{port}" in data for port in ("1194:udp4", "443:tcp4"))
    assert all(
        f"{word} = " in data
        for word in ("ca", "cert", "key", "tls-crypt-v2", "data-ciphers", "tls-version-min", "tls-cipher")
    )
    assert "remote-cert-tls = server" in data
    assert "verify-x509-name = name-prefix:gateway." in data
    key = re.search(r"(?:^|, )key = ([^,]+)", data)
    assert key
    assert desktop.run(f"stat -c %a {key[1]}").strip() == "600"


def test_profile_routes_only_the_planned_blocks(desktop: Node, gateways: LaptopGateways) -> None:
    """The VPN has routes and name servers of the plan only, the default route stays, and packets pass."""
    (gateway,) = (gateway for gateway in lab_gateways() if gateway.place == "cellar")

    desktop.run(UP)
    routes = [line.split() for line in desktop.run("ip route show dev tun0").splitlines()]
    resolvers = desktop.run("nmcli --get-values IP4.DNS connection show ada")
    address = next(words[words.index("src") + 1] for words in routes if "src" in words)

    assert {IPv4Network(words[0]) for words in routes if "via" in words} == set(gateway.routes)
    assert desktop.run("ip route show default").split()[:5] == _default_route(gateways)
    assert set(resolvers.strip().replace(" ", "").split("|")) == {str(address) for address in RESOLVERS}
    assert "1 received" in gateways.nodes[GATE].run(f"ping -c 1 -W 5 {address}")
    assert f"ada.{DEVICE}" in gateways.sessions
    desktop.run("nmcli connection down ada")


def test_never_default_keeps_the_default_route(desktop: Node, gateways: LaptopGateways) -> None:
    """Without the documented second command, NetworkManager routes all traffic through the VPN."""
    desktop.run(SPLIT.replace("yes", "no"))

    desktop.run(UP)

    assert "dev tun0" in desktop.run("ip route show default").splitlines()[0]
    desktop.run(f"nmcli connection down ada; {SPLIT}")
    assert desktop.run("ip route show default").split()[:5] == _default_route(gateways)


def _default_route(gateways: LaptopGateways) -> list[str]:
    return ["default", "via", str(gateways.node_lab.workstation.address), "dev", "eth0"]
