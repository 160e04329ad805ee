"""The fleet's names: what has one, what leads back to it, and who may ask."""

from dataclasses import replace

import pytest

from bedplate.cli.waves import waves
from bedplate.plan import FleetPlan
from bedplate.plan.beyond import asks_here
from bedplate.rehearsal.simulation import running
from bedplate.rehearsal.snapshot import Entry
from bedplate.rehearsal.stack import World, run
from bedplate.spec.network import Interconnect
from tests.support.declared import EXAMPLES, Declared, declared_of, plan_of

LAB = plan_of(EXAMPLES / "lab.yaml")
SMALL = replace(plan_of(EXAMPLES / "minimal.yaml"), pools=())
ALONE = replace(LAB, sites=(), laptops=())


@pytest.fixture(scope="module")
def stacks() -> Declared:
    """Give what the stacks of the larger example declare."""
    return declared_of(EXAMPLES / "lab.yaml")


def _made(stacks: Declared, part: str, kind: str) -> list[Entry]:
    return [entry for entry in stacks[f"lab.{part}"] if entry.type.endswith(f":{kind}")]


def test_what_has_an_address_has_a_name(stacks: Declared) -> None:
    """Machines of sites, gateways of laptops and file systems are reached by name from anywhere."""
    records = {one.inputs["name"]: one.inputs["records"] for one in _made(stacks, "links", "Record")}

    assert records["nas.cellar.lab.internal"] == ["192.168.40.5"]
    assert records["laptops.us-west-2.lab.internal"] == ["10.64.0.9"]
    assert records["home.files.us-west-2.lab.internal"] == ["10.64.32.9"]


def test_a_region_tells_all_that_a_mount_needs() -> None:
    """A file system by id, name and addresses."""
    with running(LAB.account) as simulation:
        world = World(simulation)
        runs = [run(stack, world) for wave in waves(SMALL) for stack in wave]

    (files,) = (done.snapshot.exports["files"] for done in runs if "files" in done.snapshot.exports)

    assert set(files["home"]) == {"id", "dns_name", "addresses"}


def test_the_address_of_a_sites_machine_leads_back_to_its_name(stacks: Declared) -> None:
    """One zone for each 256 addresses that hold a machine, seen from every region."""
    back = {one.inputs["name"]: one.inputs["records"] for one in _made(stacks, "links", "Record")}
    (zone,) = _made(stacks, "links", "Zone")
    seen = [one.inputs["vpcRegion"] for one in _made(stacks, "links", "ZoneAssociation") if zone.name in one.name]

    assert back["5.40.168.192.in-addr.arpa"] == ["nas.cellar.lab.internal"]
    assert zone.inputs["name"] == "40.168.192.in-addr.arpa"
    assert sorted(seen) == ["eu-north-1", "us-east-1"]


def test_sites_and_laptops_ask_at_home(stacks: Declared) -> None:
    """One resolver answers them all where transit gateways lead to it, in two zones, and answers nobody else."""
    (endpoint,) = _made(stacks, "us-west-2", "ResolverEndpoint")
    rules = [one.inputs for one in _made(stacks, "us-west-2", "SecurityGroupIngressRule") if "lab-names" in one.name]

    blocks = {str(block) for block in (LAB.sites[0].lan, *(pool.block for pool in LAB.laptops))}
    assert len(endpoint.inputs["ipAddresses"]) == 2
    assert {(one["ipProtocol"], one["fromPort"]) for one in rules} == {("tcp", 53), ("udp", 53)}
    assert {one["cidrIpv4"] for one in rules} == blocks


@pytest.mark.parametrize(
    ("plan", "regions"),
    [
        (LAB, ["us-west-2"]),
        (ALONE, []),
        (replace(ALONE, laptops=(replace(LAB.laptops[0], place="us-east-1"),)), ["us-west-2"]),
        (
            replace(LAB, interconnect=Interconnect.PEERING, laptops=(replace(LAB.laptops[0], place="us-east-1"),)),
            ["us-west-2", "us-east-1"],
        ),
    ],
    ids=["transit", "nobody asks", "laptops elsewhere", "laptops that no transit gateway leads home"],
)
def test_a_resolver_stands_where_somebody_asks(plan: FleetPlan, regions: list[str]) -> None:
    """Each address costs by the hour: none where nobody asks, one pair where all can reach it."""
    assert [region.name for region in plan.regions if asks_here(plan, region)] == regions
