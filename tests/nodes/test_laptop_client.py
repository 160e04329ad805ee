"""A profile as people's desktops take it: imported by NetworkManager on a booted machine, and dialled."""

import shlex
from collections.abc import Iterator
from ipaddress import IPv4Network

import pytest

from tests.testlab.fleets.variants import RESOLVERS, lab_gateways
from tests.testlab.machines.gateways import GATE, PUBLIC, LaptopGateways, open_device
from tests.testlab.machines.layers import APT_INSTALL
from tests.testlab.machines.stand import Node
from tests.testlab.run import told_commands

pytestmark = pytest.mark.nightly

DEVICE, ADDRESS = "desktop", "192.168.43.9"
COMMANDS = tuple(line for line in told_commands("vpn.md") if line.startswith("nmcli"))
IMPORT, SPLIT, UP = COMMANDS
INSTALL = f"DEBIAN_FRONTEND=noninteractive {shlex.join(APT_INSTALL)} network-manager-openvpn"
# What a desktop has: its own network is NetworkManager's.
OWN_NETWORK = (
    "nmcli connection add type ethernet ifname eth0 con-name own ipv6.method disabled ipv4.method manual "
    f"ipv4.addresses {ADDRESS}/32 ipv4.gateway %s && nmcli connection up own"
)


@pytest.fixture(scope="module")
def desktop(gateways: LaptopGateways) -> Iterator[Node]:
    """Give somebody's machine with NetworkManager, which has imported ada's profile as the page says."""
    gateways.signed("add", "ada", "--device", DEVICE)
    assert gateways.vpn("sync").returncode == 0
    node = gateways.stand.boot("desktop", ADDRESS)
    open_device(node)
    node.run(INSTALL, seconds=300)
    node.run(OWN_NETWORK % gateways.stand.desk.address)
    (node.root / "root/ada.ovpn").write_text(gateways.signed("show", "ada", "--device", DEVICE))
    for command in (IMPORT, SPLIT):
        node.run(f"cd /root; {command}")
    yield node
    node.stop()
    assert gateways.vpn("revoke", "ada", "--device", DEVICE).returncode == 0


def test_nothing_of_the_profile_is_lost(desktop: Node) -> None:
    """Every gateway, and all by which a gateway is told from somebody else; the key is its owner's alone."""
    data = desktop.run("nmcli --get-values vpn.data connection show ada").replace("\\", "")

    assert all(f"{PUBLIC}:{way}" in data for way in ("1194:udp4", "443:tcp4"))
    assert all(
        f"{word} = " in data
        for word in ("ca", "cert", "key", "tls-crypt-v2", "data-ciphers", "tls-version-min", "tls-cipher")
    )
    assert "remote-cert-tls = server" in data
    assert "verify-x509-name = name-prefix:gateway." in data
    assert desktop.run("stat -c %a /root/.cert/nm-openvpn/ada-key.pem").strip() == "600"


def test_it_reaches_the_plan_and_keeps_its_own_way_out(desktop: Node, gateways: LaptopGateways) -> None:
    """Routes for the plan's blocks and no other, who answers for names, and packets that cross."""
    (gateway,) = (each for each in lab_gateways() if each.place == "cellar")

    desktop.run(UP)
    routes = [line.split() for line in desktop.run("ip route show dev tun0").splitlines()]
    known = desktop.run("nmcli --get-values IP4.DNS connection show ada")
    address = next(words[words.index("src") + 1] for words in routes if "src" in words)

    assert {IPv4Network(words[0]) for words in routes if "via" in words} == set(gateway.routes)
    assert desktop.run("ip route show default").split()[:5] == _own_way_out(gateways)
    assert set(known.strip().replace(" ", "").split("|")) == {str(each) for each in RESOLVERS}
    assert "1 received" in gateways.nodes[GATE].run(f"ping -c 1 -W 5 {address}")
    assert f"ada.{DEVICE}" in gateways.sessions
    desktop.run("nmcli connection down ada")


def test_without_the_second_line_everything_would_go_to_the_gateway(desktop: Node, gateways: LaptopGateways) -> None:
    """What that line is for: NetworkManager takes any VPN for the way out."""
    desktop.run(SPLIT.replace("yes", "no"))

    desktop.run(UP)

    assert "dev tun0" in desktop.run("ip route show default").splitlines()[0]
    desktop.run(f"nmcli connection down ada; {SPLIT}")
    assert desktop.run("ip route show default").split()[:5] == _own_way_out(gateways)


def _own_way_out(gateways: LaptopGateways) -> list[str]:
    return ["default", "via", str(gateways.stand.desk.address), "dev", "eth0"]
