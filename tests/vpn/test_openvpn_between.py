"""Laptops that may reach each other, and other machines that may not reach them."""

from collections.abc import Iterator

import pytest

from tests.testlab.fleets.variants import connected_laptop_gateways
from tests.testlab.network.laptops import MACHINE, NODE, LaptopLab

ADA, BOB, EVE = "ada.laptop", "bob.desk", "eve.phone"
# Addresses of the three, from slot, gateway and transport.
ADA_IS, BOB_IS, EVE_IS = "10.121.0.2", "10.121.2.3", "10.121.4.4"
pytestmark = [pytest.mark.nightly, pytest.mark.xdist_group("laptops-between")]


@pytest.fixture(scope="module")
def lab() -> Iterator[LaptopLab]:
    """Return three laptops: at home over UDP, at home over TCP, and at the site's gateway."""
    with LaptopLab("between", ADA, BOB, EVE, gateways=connected_laptop_gateways()) as lab:
        for gateway in lab.gateways.values():
            gateway.start()
        for name, way in ((ADA, "52.1.2.3 1194 udp4"), (BOB, "52.1.2.3 443 tcp4"), (EVE, "8.20.30.40 1194 udp4")):
            lines = lab.profile(name).splitlines()
            lab.laptops[name].connect(
                "\n".join(line for line in lines if not line.startswith("remote ") or line.endswith(way)) + "\n"
            )
            lab.laptops[name].wait()
        yield lab


def _counted(lab: LaptopLab, place: str, why: str) -> int:
    rules = lab.gateways[place].host.run("nft", "list", "table", "inet", "bedplate_laptops")
    return sum(int(line.split("packets ")[1].split()[0]) for line in rules.splitlines() if f'"{why}"' in line)


@pytest.mark.parametrize(
    ("source", "target"),
    [(ADA, BOB_IS), (BOB, ADA_IS), (ADA, EVE_IS), (EVE, ADA_IS), (BOB, EVE_IS), (EVE, BOB_IS)],
    ids=["udp-to-tcp", "tcp-to-udp", "home-to-site", "site-to-home", "tcp-to-site", "site-to-tcp"],
)
def test_laptops_reach_each_other(source: str, target: str, lab: LaptopLab) -> None:
    """At one gateway over either transport, and at two gateways."""
    assert lab.laptops[source].host.pings(target)


@pytest.mark.parametrize(("place", "address"), [("us-west-2", ADA_IS), ("cellar", EVE_IS)])
def test_other_machines_cannot_open_a_connection_to_a_laptop(place: str, address: str, lab: LaptopLab) -> None:
    """Neither a node nor a site's machine, although both answer laptops."""
    before = _counted(lab, place, "new connection to a laptop")

    for host in (lab.node, lab.machine):
        assert not host.tries("timeout", "0.5", "bash", "-c", f"exec 3<>/dev/tcp/{address}/22")

    assert _counted(lab, place, "new connection to a laptop") >= before + 2
    assert lab.laptops[ADA].host.pings(NODE)
    assert lab.laptops[EVE].host.pings(MACHINE)


def test_a_spoofed_laptop_address_is_dropped(lab: LaptopLab) -> None:
    """A node with the address of a laptop of the same gateway is not treated as a laptop."""
    why = "with a laptop's source address, not from a laptop"
    before = _counted(lab, "us-west-2", why)
    lab.node.run("ip", "address", "add", f"{BOB_IS}/32", "dev", "lo")

    assert not lab.node.tries("ping", "-q", "-c", "2", "-i", "0.1", "-W", "0.3", "-I", BOB_IS, ADA_IS)

    assert _counted(lab, "us-west-2", why) == before + 2
