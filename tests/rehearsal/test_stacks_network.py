"""VPN connections of sites, DNS records and the inbound resolver."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import replace

import pytest

from bedplate.operate.rehearsal import waves
from bedplate.plan import FleetPlan
from bedplate.plan.links import has_inbound_resolver
from bedplate.rehearsal.rehearse import Phase, Report, document, rehearse
from bedplate.rehearsal.simulation import running
from bedplate.rehearsal.stack import SharedState, graph, run
from bedplate.rehearsal.state import Entry
from bedplate.rehearsal.wire import masked
from bedplate.spec.network import Interconnect
from bedplate.spec.sites import Dials
from tests.testlab.fleets.variants import with_gateways
from tests.testlab.rehearsal.programs import EXAMPLES, Declared, declared, declared_of, plan_of

LAB = plan_of(EXAMPLES / "lab.yaml")
CONNECTION = "aws:ec2/vpnConnection:VpnConnection"


def _links(plan: FleetPlan, kind: str) -> dict[str, Entry]:
    return {entry.name: entry for entry in declared(plan)["lab.links"] if entry.type == kind}


@pytest.fixture(scope="module")
def connections() -> dict[str, Entry]:
    """Return the VPN connections of the lab example by name."""
    return _links(LAB, CONNECTION)


def test_a_site_has_a_connection_to_each_region(connections: dict[str, Entry]) -> None:
    """A site reaches the other regions when one fails."""
    assert set(connections) == {f"lab-cellar-{region.name}" for region in LAB.regions}


@pytest.mark.parametrize("number", [1, 2])
def test_both_tunnels_allow_only_strong_algorithms(number: int, connections: dict[str, Entry]) -> None:
    """AWS may choose the weakest allowed algorithm, so only strong ones are allowed; logs are enabled."""
    inputs = connections["lab-cellar-eu-north-1"].inputs

    options = {key.removeprefix(f"tunnel{number}"): value for key, value in inputs.items() if key.startswith("tunnel")}

    for phase in ("Phase1", "Phase2"):
        assert options[f"{phase}EncryptionAlgorithms"] == ["AES256-GCM-16"]
        assert options[f"{phase}IntegrityAlgorithms"] == ["SHA2-384", "SHA2-512"]
        assert options[f"{phase}DhGroupNumbers"] == [19, 20, 21]
    assert options["IkeVersions"] == ["ikev2"]
    assert (options["DpdTimeoutAction"], options["DpdTimeoutSeconds"]) == ("restart", 30)
    assert options["LogOptions"]["cloudwatchLogOptions"]["logEnabled"] is True


def test_inside_addresses_are_those_of_the_plan(connections: dict[str, Entry]) -> None:
    """The lock has the inside addresses, which AWS would choose at random."""
    inside = {
        (entry.name, number): entry.inputs[f"tunnel{number}InsideCidr"]
        for entry in connections.values()
        for number in (1, 2)
    }

    assert inside == {
        (f"lab-{tunnel.site}-{tunnel.region}", tunnel.number): str(tunnel.inside) for tunnel in LAB.tunnels
    }


@pytest.mark.parametrize(("dials", "action"), [(Dials.SITE, "add"), (Dials.AWS, "start")])
def test_one_end_starts_a_tunnel(dials: Dials, action: str) -> None:
    """AWS starts a tunnel only if the site does not."""
    plan = with_gateways(LAB, dials=dials)

    for entry in _links(plan, CONNECTION).values():
        assert {entry.inputs[f"tunnel{number}StartupAction"] for number in (1, 2)} == {action}


def test_a_customer_gateway_has_the_name_of_its_fleet() -> None:
    """AWS returns an existing gateway for a request with the same address, AS number and device name."""
    gateways = _links(LAB, "aws:ec2/customerGateway:CustomerGateway").values()

    assert {entry.inputs["deviceName"] for entry in gateways} == {"lab.gate.cellar"}


def test_a_four_byte_as_number_uses_bgp_asn_extended() -> None:
    """AWS has two arguments for AS numbers, and requires the second for large ones."""
    plan = with_gateways(LAB, asn=2**31)

    for entry in _links(plan, "aws:ec2/customerGateway:CustomerGateway").values():
        assert entry.inputs["bgpAsnExtended"] == str(2**31)
        assert "bgpAsn" not in entry.inputs


@pytest.fixture(
    scope="module",
    params=[pytest.param(Interconnect.TRANSIT, marks=pytest.mark.nightly), Interconnect.PEERING, Interconnect.NONE],
)
def report(request: pytest.FixtureRequest) -> Report:
    """Return the rehearsal of two regions and a site, for each interconnect."""
    regions = tuple(region for region in LAB.regions if region.name != "eu-north-1")
    tunnels = tuple(tunnel for tunnel in LAB.tunnels if tunnel.region != "eu-north-1")
    plan = replace(LAB, regions=regions, tunnels=tunnels, pools=(), buckets=(), files=(), interconnect=request.param)
    return rehearse(plan.account, waves(plan))


def test_sites_are_rehearsed_with_each_interconnect(report: Report) -> None:
    """Sites behind both kinds of gateways are created, unchanged in a second run, and destroyed."""
    links = next(stack for stack in report.stacks if stack.name == "lab.links")

    assert report.ok
    assert not links.changes(Phase.AGAIN)
    assert not links.kept


def test_no_preshared_key_is_shown(report: Report) -> None:
    """Graph, report and exports contain no preshared key; Secrets Manager has all of them."""
    snapshots = [stack.runs[Phase.CREATE].snapshot for stack in report.stacks]
    entries = [entry for snapshot in snapshots for entry in snapshot.entries.values()]
    keys = set(_keys(entries))

    output = json.dumps([graph(entries), document(report), [masked(dict(snapshot.exports)) for snapshot in snapshots]])

    assert len(keys) == 4
    assert not [key for key in keys if key in output]
    secrets = [entry.inputs["secretString"].value for entry in entries if entry.type.endswith(":SecretVersion")]
    assert {key for text in secrets for key in json.loads(text).values()} == keys


def _keys(entries: Iterable[Entry]) -> Iterator[str]:
    for entry in entries:
        if entry.type == CONNECTION:
            yield from (entry.outputs[f"tunnel{number}PresharedKey"].value for number in (1, 2))


SMALL = replace(plan_of(EXAMPLES / "minimal.yaml"), pools=())
ALONE = replace(LAB, sites=(), laptops=())


@pytest.fixture(scope="module")
def stacks() -> Declared:
    """Return the declared resources of the lab example."""
    return declared_of(EXAMPLES / "lab.yaml")


def _resources(stacks: Declared, part: str, kind: str) -> list[Entry]:
    return [entry for entry in stacks[f"lab.{part}"] if entry.type.endswith(f":{kind}")]


def test_machines_gateways_and_file_systems_have_records(stacks: Declared) -> None:
    """The private zone has A records of site machines, VPN gateways and file systems."""
    records = {record.inputs["name"]: record.inputs["records"] for record in _resources(stacks, "us-west-2", "Record")}

    assert records["nas.cellar.lab.internal"] == ["192.168.40.5"]
    assert {"laptops.us-west-2.lab.internal", "home.files.us-west-2.lab.internal"} <= records.keys()


def test_a_region_exports_what_a_mount_needs() -> None:
    """Id, DNS name and addresses of each file system."""
    with running(LAB.account) as simulation:
        world = SharedState(simulation)
        runs = [run(stack, world) for wave in waves(SMALL) for stack in wave]

    (files,) = (result.snapshot.exports["files"] for result in runs if "files" in result.snapshot.exports)

    assert set(files["home"]) == {"id", "dns_name", "addresses"}


def test_site_machines_have_reverse_records(stacks: Declared) -> None:
    """One reverse zone for each 256 addresses with a machine, associated with every region."""
    records = {entry.inputs["name"]: entry.inputs["records"] for entry in _resources(stacks, "links", "Record")}
    (zone,) = _resources(stacks, "links", "Zone")
    regions = [
        entry.inputs["vpcRegion"] for entry in _resources(stacks, "links", "ZoneAssociation") if zone.name in entry.name
    ]

    assert records["5.40.168.192.in-addr.arpa"] == ["nas.cellar.lab.internal"]
    assert zone.inputs["name"] == "40.168.192.in-addr.arpa"
    assert sorted(regions) == ["eu-north-1", "us-east-1"]


def test_sites_and_laptops_use_the_resolver_at_home(stacks: Declared) -> None:
    """With transit gateways one inbound endpoint in two zones accepts DNS from sites and laptops only."""
    (endpoint,) = (
        entry for entry in _resources(stacks, "us-west-2", "ResolverEndpoint") if entry.inputs["direction"] == "INBOUND"
    )
    rules = [
        entry.inputs
        for entry in _resources(stacks, "us-west-2", "SecurityGroupIngressRule")
        if "lab-names" in entry.name
    ]

    blocks = {str(block) for block in (LAB.sites[0].networks["cellar"], *(pool.block for pool in LAB.laptops))}
    assert len(endpoint.inputs["ipAddresses"]) == 2
    assert {(entry["ipProtocol"], entry["fromPort"]) for entry in rules} == {("tcp", 53), ("udp", 53)}
    assert {entry["cidrIpv4"] for entry in rules} == blocks


@pytest.mark.parametrize(
    ("plan", "regions"),
    [
        (LAB, ["us-west-2"]),
        (ALONE, []),
        (plan_of(EXAMPLES / "gpu-box.yaml"), []),
        (replace(ALONE, laptops=(replace(LAB.laptops[0], place="us-east-1"),)), ["us-west-2"]),
        (
            replace(LAB, interconnect=Interconnect.PEERING, laptops=(replace(LAB.laptops[0], place="us-east-1"),)),
            ["us-west-2", "us-east-1"],
        ),
    ],
    ids=[
        "transit",
        "no clients",
        "a gateway that forwards DNS",
        "laptops in another region",
        "laptops without a transit gateway",
    ],
)
def test_only_regions_with_clients_have_a_resolver(plan: FleetPlan, regions: list[str]) -> None:
    """Endpoint addresses cost by the hour: none without clients, one pair if all clients reach it."""
    assert [region.name for region in plan.regions if has_inbound_resolver(plan, region)] == regions
