"""Where a NAT gateway stands: it takes an address of its subnet, as any machine would."""

from ipaddress import ip_address, ip_network

from bedplate.rehearsal.kinds.interfaces import taken_addresses
from bedplate.rehearsal.simulation import running
from tests.support.world import World

ACCOUNT = "123456789012"


def test_a_nat_gateway_takes_an_address_of_its_subnet() -> None:
    """The address that AWS gives a NAT gateway lies in the gateway's subnet, and nothing else may have it."""
    with running(ACCOUNT) as simulation:
        world = World(simulation.region("us-east-1"))
        made = world.aws.call("ec2", "create_nat_gateway", SubnetId=world.subnet, ConnectivityType="private")

        address = made["NatGateway"]["NatGatewayAddresses"][0]["PrivateIp"]

        assert ip_address(address) in ip_network("10.20.0.0/24")
        assert address in taken_addresses(world.aws, world.subnet)
