"""A site's tunnels to a region: what AWS's end agrees to, who dials, and where the keys are."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import replace

import pytest

from bedplate.cli.waves import waves
from bedplate.plan import FleetPlan
from bedplate.rehearsal.graph import graph
from bedplate.rehearsal.rehearse import rehearse
from bedplate.rehearsal.report import Phase, Report, document
from bedplate.rehearsal.snapshot import Entry
from bedplate.rehearsal.wire import masked
from bedplate.spec.network import Interconnect
from bedplate.spec.site import Dials
from tests.support.declared import EXAMPLES, declared, plan_of

LAB = plan_of(EXAMPLES / "lab.yaml")
CONNECTION = "aws:ec2/vpnConnection:VpnConnection"


def _links(plan: FleetPlan, kind: str) -> dict[str, Entry]:
    return {entry.name: entry for entry in declared(plan)["lab.links"] if entry.type == kind}


@pytest.fixture(scope="module")
def connections() -> dict[str, Entry]:
    """Give the connections of the larger example, by name."""
    return _links(LAB, CONNECTION)


def test_a_site_has_a_connection_to_each_region(connections: dict[str, Entry]) -> None:
    """Whatever becomes of one region, the site reaches the others."""
    assert set(connections) == {f"lab-cellar-{region.name}" for region in LAB.regions}


@pytest.mark.parametrize("number", [1, 2])
def test_both_tunnels_take_only_what_is_strong(number: int, connections: dict[str, Entry]) -> None:
    """AWS takes the weakest of what it is allowed, so nothing weak is allowed; and it tells what it does."""
    inputs = connections["lab-cellar-eu-north-1"].inputs

    told = {key.removeprefix(f"tunnel{number}"): value for key, value in inputs.items() if key.startswith("tunnel")}

    for phase in ("Phase1", "Phase2"):
        assert told[f"{phase}EncryptionAlgorithms"] == ["AES256-GCM-16"]
        assert told[f"{phase}IntegrityAlgorithms"] == ["SHA2-384", "SHA2-512"]
        assert told[f"{phase}DhGroupNumbers"] == [19, 20, 21]
    assert told["IkeVersions"] == ["ikev2"]
    assert (told["DpdTimeoutAction"], told["DpdTimeoutSeconds"]) == ("restart", 30)
    assert told["LogOptions"]["cloudwatchLogOptions"]["logEnabled"] is True


def test_the_inside_addresses_are_the_plans(connections: dict[str, Entry]) -> None:
    """What AWS would pick at random, the lock remembers."""
    inside = {
        (entry.name, number): entry.inputs[f"tunnel{number}InsideCidr"]
        for entry in connections.values()
        for number in (1, 2)
    }

    assert inside == {(f"lab-{one.site}-{one.region}", one.number): str(one.inside) for one in LAB.tunnels}


@pytest.mark.parametrize(("dials", "action"), [(Dials.SITE, "add"), (Dials.AWS, "start")])
def test_one_end_dials(dials: Dials, action: str) -> None:
    """AWS starts a tunnel only where the site does not."""
    plan = replace(LAB, sites=tuple(replace(site, dials=dials) for site in LAB.sites))

    for entry in _links(plan, CONNECTION).values():
        assert {entry.inputs[f"tunnel{number}StartupAction"] for number in (1, 2)} == {action}


def test_a_number_of_four_bytes_goes_by_its_own_argument() -> None:
    """AWS has two arguments for AS numbers, and takes the large ones under the second alone."""
    plan = replace(LAB, sites=tuple(replace(site, asn=2**31) for site in LAB.sites))

    for entry in _links(plan, "aws:ec2/customerGateway:CustomerGateway").values():
        assert entry.inputs["bgpAsnExtended"] == str(2**31)
        assert "bgpAsn" not in entry.inputs


@pytest.fixture(scope="module", params=[Interconnect.TRANSIT, Interconnect.PEERING, Interconnect.NONE])
def made(request: pytest.FixtureRequest) -> Report:
    """Give the rehearsal of two regions and a site, by each way in which regions are tied."""
    regions = tuple(region for region in LAB.regions if region.name != "eu-north-1")
    tunnels = tuple(tunnel for tunnel in LAB.tunnels if tunnel.region != "eu-north-1")
    plan = replace(LAB, regions=regions, tunnels=tunnels, pools=(), buckets=(), files=(), interconnect=request.param)
    return rehearse(plan.account, waves(plan))


def test_sites_are_rehearsed_by_each_way_in_which_regions_are_tied(made: Report) -> None:
    """With a transit gateway, or a gateway of its own in each region: made, run again without a change, and gone."""
    links = next(stack for stack in made.stacks if stack.name == "lab.links")

    assert made.ok
    assert not links.changes(Phase.AGAIN)
    assert not links.kept


def test_no_key_of_a_tunnel_is_ever_shown(made: Report) -> None:
    """Graph, report and exports hold no key in clear, though Secrets Manager holds them all."""
    snapshots = [stack.runs[Phase.CREATE].snapshot for stack in made.stacks]
    entries = [entry for snapshot in snapshots for entry in snapshot.entries.values()]
    keys = set(_keys(entries))

    shown = json.dumps([graph(entries), document(made), [masked(dict(each.exports)) for each in snapshots]])

    assert len(keys) == 4
    assert not [key for key in keys if key in shown]
    kept = [entry.inputs["secretString"].value for entry in entries if entry.type.endswith(":SecretVersion")]
    assert {key for text in kept for key in json.loads(text).values()} == keys


def _keys(entries: Iterable[Entry]) -> Iterator[str]:
    for entry in entries:
        if entry.type == CONNECTION:
            yield from (entry.outputs[f"tunnel{number}PresharedKey"].value for number in (1, 2))
