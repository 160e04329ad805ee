"""DNS of a fleet in one region: the gateway forwards it, on the addresses of its VPN devices only."""

import re
import shlex
from collections.abc import Iterator

import pytest

from bedplate.plan.laptops import LaptopGatewayPlan, Transport, laptop_gateways
from tests.testlab.network.gateways import read_unit
from tests.testlab.network.laptops import NAMED
from tests.testlab.network.netlab import Lab, LabError, LabHost, until
from tests.testlab.rehearsal.programs import EXAMPLES, plan_of
from vpn.laptops.server import device, dns_unit

NAME, ADDRESS = "box-1.eu-north-1.box.internal", "10.64.0.77"
PRIVATE = "10.64.0.4"
# As the unit: any user, with the right to use ports below 1024 only.
_RIGHTS = (
    "--inh-caps=-all,+net_bind_service --ambient-caps=-all,+net_bind_service --bounding-set=-all,+net_bind_service"
)
_AS_UNIT = shlex.split(f"setpriv --reuid=65534 --regid=65534 --clear-groups --no-new-privs {_RIGHTS}")
_LISTENING = re.compile(r" ([\d.]+)(?:%\w+)?:53 ")


@pytest.fixture(scope="module")
def gateway() -> LaptopGatewayPlan:
    """Return the gateway of an example with one region."""
    (gateway,) = laptop_gateways(plan_of(EXAMPLES / "gpu-box.yaml"))
    return gateway


@pytest.fixture(scope="module")
def hosts(gateway: LaptopGatewayPlan) -> Iterator[tuple[LabHost, LabHost]]:
    """Return a gateway with a running forwarder and a laptop; the VPN device appears after the start."""
    with Lab("dns") as lab:
        host, laptop, vpc = lab.host("gw"), lab.host("laptop"), lab.host("vpc")
        lab.wire((host, "lan0", f"{PRIVATE}/16"), (vpc, "lan0", f"{gateway.upstream}/16"))
        upstream = ("--no-daemon", "--no-resolv", "--no-hosts", "--user=root", "--pid-file=")
        vpc.start("dnsmasq", *upstream, f"--host-record={NAME},{ADDRESS}", log="names.log")
        (command,) = read_unit(dns_unit(gateway)).commands("ExecStart")
        program = host.start(*_AS_UNIT, *command, log="dns.log")
        until(lambda: "started" in program.output or not program.runs, 10, "dnsmasq does not start")
        assert program.runs, program.output
        block = gateway.block(Transport.UDP)
        lab.wire((host, device(Transport.UDP), f"{block[1]}/{block.prefixlen}"), (laptop, "tun0", f"{block[2]}/27"))
        laptop.route("10.64.0.0/16", block[1])
        yield host, laptop


def test_the_gateway_forwards_dns_of_laptops(gateway: LaptopGatewayPlan, hosts: tuple[LabHost, LabHost]) -> None:
    """A laptop resolves names of the fleet by the pushed server, without a restart after the device appeared."""
    _, laptop = hosts
    (server,) = gateway.name_servers(Transport.UDP)

    until(lambda: _answer(laptop, str(server)) == ADDRESS, 10, "no answer")


def test_dns_listens_on_vpn_addresses_only(gateway: LaptopGatewayPlan, hosts: tuple[LabHost, LabHost]) -> None:
    """The gateway does not answer on its address in the VPC."""
    host, laptop = hosts
    sockets = host.run("ss", "-Hlntu", "sport = :53")

    assert set(_LISTENING.findall(sockets)) == {str(address) for address in gateway.name_servers(Transport.UDP)}
    assert _answer(laptop, PRIVATE) == ""


def _answer(laptop: LabHost, server: str) -> str:
    servers = laptop.folder / "resolv.conf"
    servers.write_text(f"nameserver {server}\noptions timeout:1 attempts:1\n")
    try:
        return laptop.run("sh", "-c", NAMED, str(servers), "getent", "hosts", NAME).split()[0]
    except LabError:
        return ""
