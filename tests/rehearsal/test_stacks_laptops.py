"""The gateway that laptops dial: open to the world where it must be, and nowhere else."""

import pytest

from bedplate.catalog import load_catalog
from bedplate.plan.standing import GATEWAY_TYPE
from bedplate.rehearsal.snapshot import Entry
from stacks.laptop_gateway import gateway_zone
from tests.support.declared import EXAMPLES, declared_of, plan_of

LAB = plan_of(EXAMPLES / "lab.yaml")


@pytest.fixture(scope="module")
def gateway() -> tuple[Entry, ...]:
    """Give what the larger example's gateway is made of."""
    stacks = declared_of(EXAMPLES / "lab.yaml")
    assert not [entry for part in ("us-east-1", "eu-north-1") for entry in stacks[f"lab.{part}"] if _is_part(entry)]
    return tuple(entry for entry in stacks["lab.us-west-2"] if _is_part(entry))


def _is_part(entry: Entry) -> bool:
    return entry.is_in_cloud and entry.name.startswith("lab-laptops")


def _only(gateway: tuple[Entry, ...], kind: str) -> Entry:
    (found,) = (entry for entry in gateway if entry.type.endswith(f":{kind}"))
    return found


def test_the_world_gets_to_openvpn_and_to_nothing_else(gateway: tuple[Entry, ...]) -> None:
    """UDP 1194, and TCP 443 where a network lets nothing else out."""
    rules = [entry.inputs for entry in gateway if entry.type.endswith(":SecurityGroupIngressRule")]

    doors = {(one["ipProtocol"], one["fromPort"], one["toPort"], one["cidrIpv4"]) for one in rules}

    assert doors == {("udp", 1194, 1194, "0.0.0.0/0"), ("tcp", 443, 443, "0.0.0.0/0")}


def test_the_gateway_forwards(gateway: tuple[Entry, ...]) -> None:
    """EC2 drops what is not addressed to the interface itself, unless it is told not to check."""
    assert _only(gateway, "NetworkInterface").inputs["sourceDestCheck"] is False


def test_one_machine_takes_over_the_interface(gateway: tuple[Entry, ...]) -> None:
    """The address stays when the machine goes, and no second machine waits for an interface that is in use."""
    group, template = _only(gateway, "Group").inputs, _only(gateway, "LaunchTemplate").inputs

    assert (group["minSize"], group["maxSize"], group["availabilityZones"]) == (1, 1, ["us-west-2a"])
    assert group["instanceMaintenancePolicy"] == {"minHealthyPercentage": 0, "maxHealthyPercentage": 100}
    assert [set(nic) for nic in template["networkInterfaces"]] == [{"deviceIndex", "networkInterfaceId"}]


def test_every_table_of_the_region_leads_to_the_pool(gateway: tuple[Entry, ...]) -> None:
    """Whoever a laptop talks to knows the way back."""
    routes = {entry.name: entry.inputs["destinationCidrBlock"] for entry in gateway if entry.type.endswith(":Route")}

    places = ["edge", *(f"{zone.name}-nodes" for zone in LAB.region("us-west-2").zones)]
    assert routes == {f"lab-laptops-from-{place}": str(LAB.laptops[0].block) for place in places}


def test_the_gateway_stands_where_its_type_is_offered() -> None:
    """Of the zones that offer it, the one allotted first; the order of the file means nothing."""
    region = LAB.region("us-west-2")

    assert gateway_zone(region, ()) == "us-west-2a"
    assert gateway_zone(region, ("us-west-2c", "us-west-2b")) == "us-west-2b"


def test_every_region_offers_the_gateways_type() -> None:
    """A pool in any region has a gateway."""
    catalog = load_catalog()

    assert set(catalog.regions_offering(GATEWAY_TYPE)) >= set(catalog.regions)
