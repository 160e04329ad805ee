"""A laptop reaches machines behind both gateways, by name, and nothing else."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from bedplate.plan.laptops import Transport
from bedplate.programs.gateway.sessions import run_command
from tests.testlab.network.laptops import MACHINE, MACHINE_NAME, NOBODY, NODE, NODE_NAME, LaptopLab

ADA, BOB = "ada.laptop", "bob.desk"
ADA_AT_HOME, BOB_AT_HOME = "10.121.0.2", "10.121.0.3"
pytestmark = pytest.mark.xdist_group("laptops-reach")


@pytest.fixture(scope="module")
def lab() -> Iterator[LaptopLab]:
    """Return a fleet with DNS, and two laptops connected to the gateway at home."""
    with LaptopLab("reach", ADA, BOB) as lab:
        lab.answer_names()
        for gateway in lab.gateways.values():
            gateway.start()
        for name, laptop in lab.laptops.items():
            laptop.connect(lab.profile(name), "--script-security", "2", "--up", str(laptop.names_from_gateway()))
            laptop.wait()
        yield lab


def _dropped(lab: LaptopLab, why: str) -> int:
    rules = lab.gateways["us-west-2"].host.run("nft", "list", "table", "inet", "bedplate_laptops")
    return sum(int(line.split("packets ")[1].split()[0]) for line in rules.splitlines() if f'"{why}"' in line)


@pytest.mark.parametrize("name", [MACHINE_NAME, NODE_NAME, "titan-01.cellar", "workbench-cpu-1.us-west-2"])
def test_a_laptop_reaches_machines_by_name(name: str, lab: LaptopLab) -> None:
    """In the region of its gateway and on the site behind the other, with full names and search domains."""
    domain = "" if name.endswith(".lab.internal") else ".lab.internal"

    output = lab.laptops[ADA].named("ping", "-n", "-c", "2", "-i", "0.1", "-W", "1", name + domain)

    assert "2 received" in output


def test_short_names_are_resolved(lab: LaptopLab) -> None:
    """The name of a machine and its place are enough."""
    assert str(MACHINE) in lab.laptops[ADA].named("getent", "hosts", "titan-01.cellar")


def test_the_machines_reach_each_other_by_name(lab: LaptopLab) -> None:
    """From the region to the site and back, including DNS."""
    ping = ("ping", "-n", "-c", "2", "-i", "0.1", "-W", "1")

    assert "2 received" in lab.named(lab.node, *ping, MACHINE_NAME)
    assert "2 received" in lab.named(lab.machine, *ping, NODE_NAME)


def test_each_laptop_has_the_address_of_its_slot(lab: LaptopLab) -> None:
    """The address differs between gateways, and is always the same at one."""
    addresses = [lab.laptops[name].host.run("ip", "-4", "-brief", "address", "show", "tun0") for name in (ADA, BOB)]

    assert [
        f"{address}/23" in output for address, output in zip((ADA_AT_HOME, BOB_AT_HOME), addresses, strict=True)
    ] == [True] * 2


def test_laptops_do_not_reach_each_other(lab: LaptopLab) -> None:
    """Neither the daemon nor the machine forwards between them."""
    before = _dropped(lab, "from laptop to laptop")

    assert not lab.laptops[ADA].host.pings(BOB_AT_HOME, seconds=0.3)

    assert _dropped(lab, "from laptop to laptop") == before + 3


@pytest.mark.parametrize("port", [443, 1194, 22])
def test_other_machines_cannot_open_a_connection_to_a_laptop(port: int, lab: LaptopLab) -> None:
    """Also not to the gateway's two public ports, which its security group opens."""
    before = _dropped(lab, "new connection to a laptop")

    for host in (lab.node, lab.machine):
        assert not host.tries("timeout", "0.5", "bash", "-c", f"exec 3<>/dev/tcp/{ADA_AT_HOME}/{port}")

    assert _dropped(lab, "new connection to a laptop") >= before + 1


def test_a_laptop_reaches_only_networks_of_the_plan(lab: LaptopLab) -> None:
    """The gateway forwards neither to the internet nor to another pool."""
    why = "from a laptop to a network outside the plan"
    ada, before = lab.laptops[ADA].host, _dropped(lab, why)
    for address in ("8.20.30.1", "10.121.4.2"):
        ada.run("ip", "route", "add", f"{address}/32", "dev", "tun0")

    assert not any(ada.pings(address, seconds=0.3) for address in ("8.20.30.1", "10.121.4.2"))

    assert _dropped(lab, why) == before + 6


def test_a_laptop_cannot_take_another_address(lab: LaptopLab) -> None:
    """The daemon drops packets with the address of another laptop, and logs the sender."""
    gateway, ada = lab.gateways["us-west-2"], lab.laptops[ADA].host
    ada.run("ip", "address", "add", f"{BOB_AT_HOME}/32", "dev", "lo")
    run_command(Path(gateway.folders.socket(Transport.UDP)), "verb 4")

    assert not ada.tries("ping", "-q", "-c", "2", "-i", "0.1", "-W", "0.3", "-I", BOB_AT_HOME, str(NODE))

    assert f"MULTI: bad source address from client [{BOB_AT_HOME}]" in gateway.log()
    assert lab.laptops[BOB].host.pings(NODE)


def test_the_daemons_run_with_a_routers_capabilities(lab: LaptopLab) -> None:
    """The daemons run as in their unit, and all tests above pass with it."""
    for gateway in lab.gateways.values():
        for daemon in gateway.daemons.values():
            status = dict(line.split(":\t") for line in _status(daemon.pid))

            assert status["Uid"].split() == [str(NOBODY)] * 4
            # Bits 10 and 12: CAP_NET_BIND_SERVICE and CAP_NET_ADMIN.
            assert int(status["CapBnd"], 16) == int(status["CapEff"], 16) == 1 << 10 | 1 << 12


def _status(pid: int) -> list[str]:
    text = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return [line for line in text.splitlines() if line.startswith(("Uid:", "Cap"))]


def test_a_laptop_connects_over_tcp(lab: LaptopLab) -> None:
    """Its address is in the other half of the pool, and the machines answer."""
    bob = lab.laptops[BOB]
    remotes = [line for line in lab.profile(BOB).splitlines() if not line.endswith("udp4")]

    bob.connect("\n".join(remotes) + "\n")
    bob.wait()

    assert "10.121.2.3/23" in bob.host.run("ip", "-4", "-brief", "address")
    assert bob.host.pings(NODE)
    assert bob.host.pings(MACHINE)
    assert Transport.TCP in lab.gateways["us-west-2"].daemons
