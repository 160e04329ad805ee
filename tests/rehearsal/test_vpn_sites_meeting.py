"""Tests that the two ends of each site tunnel agree: the AWS side from the stacks, the site side from its settings."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache

import pytest

from bedplate.plan import FleetPlan
from bedplate.rehearsal.state import Entry
from bedplate.spec.network import Interconnect
from bedplate.spec.sites import Dials
from tests.testlab.fakes.daemons import read_settings
from tests.testlab.fleets.variants import LAB_PLAN, cellar_gateway, with_gateways
from tests.testlab.rehearsal.meeting import AwsSide, SiteSide, differences, frr_neighbours
from tests.testlab.rehearsal.programs import declared
from vpn.sites.files import files_of

# The default AWS-side ASN (EC2 API: CreateVpnGateway).
AMAZON_ASN = 64512
REGION = "us-east-1"
Change = Callable[[AwsSide, SiteSide], tuple[AwsSide, SiteSide]]


# Two regions and the site of the larger example, without machines and storage.
SMALL = replace(
    LAB_PLAN,
    regions=LAB_PLAN.regions[:2],
    tunnels=tuple(link for link in LAB_PLAN.tunnels if link.region != LAB_PLAN.regions[2].name),
    pools=(),
    buckets=(),
    files=(),
    control_plane=None,
)
PLANS = {
    "transit": SMALL,
    "private-gateways": replace(SMALL, interconnect=Interconnect.NONE),
    "initiated-by-aws": with_gateways(SMALL, dials=Dials.AWS),
    "an-asn-of-four-bytes": with_gateways(SMALL, asn=4_200_900_001),
}


@cache
def _graph(name: str) -> tuple[Entry, ...]:
    return tuple(entry for stack in declared(PLANS[name]).values() for entry in stack)


def aws_sides(name: str) -> dict[str, AwsSide]:
    """Return the AWS side of each tunnel by `<region>-<number>`, as the stacks declare it."""
    return dict(_sides(_graph(name)))


def _sides(graph: tuple[Entry, ...]) -> Iterator[tuple[str, AwsSide]]:
    gateways = {entry.name: entry.inputs for entry in graph if entry.type.endswith(":CustomerGateway")}
    numbers = _transit_asns(graph)
    for entry in graph:
        if entry.type.endswith(":VpnConnection"):
            region = entry.name.removeprefix("lab-cellar-")
            for number in (1, 2):
                side = AwsSide(number, entry.inputs, gateways[entry.name], numbers.get(region, AMAZON_ASN))
                yield f"{region}-{number}", side


def _transit_asns(graph: tuple[Entry, ...]) -> dict[str, int]:
    """Return the ASN of each region's transit gateway."""
    gateways = [entry for entry in graph if entry.type.endswith(":TransitGateway")]
    return {
        str(entry.inputs["description"]).rpartition(" in ")[2]: int(entry.inputs["amazonSideAsn"]) for entry in gateways
    }


def site_sides(plan: FleetPlan) -> dict[str, SiteSide]:
    """Return the site side of each tunnel by the same names, from its settings."""
    files = files_of(cellar_gateway(plan))
    asn, neighbours = frr_neighbours(next(file.text for file in files if file.path.name == "frr.conf"))
    rows = [row.split() for file in files if file.path.name == "table" for row in file.text.splitlines()]
    inside = {row[0]: row[2] for row in rows}
    texts = [read_settings(file.text) for file in files if file.path.name == "swanctl.conf"]
    connections = {name: settings for text in texts for name, settings in text["connections"].items()}
    return {name: SiteSide(name, settings, inside[name], neighbours, asn) for name, settings in connections.items()}


@pytest.mark.parametrize("name", PLANS)
def test_both_ends_agree(name: str) -> None:
    """Every tunnel has two ends, and they agree."""
    aws, site = aws_sides(name), site_sides(PLANS[name])

    assert set(aws) == set(site)
    assert {tunnel: differences(aws[tunnel], site[tunnel]) for tunnel in site} == dict.fromkeys(site, ())


def _aws(**options: object) -> Change:
    return lambda aws, site: (replace(aws, connection={**aws.connection, **options}), site)


def _customer_gateway(**values: object) -> Change:
    return lambda aws, site: (replace(aws, site_gateway={**aws.site_gateway, **values}), site)


def _site(**settings: object) -> Change:
    return lambda aws, site: (aws, replace(site, connection={**site.connection, **settings}))


def _child(**settings: object) -> Change:
    def change(aws: AwsSide, site: SiteSide) -> tuple[AwsSide, SiteSide]:
        child = {**site.connection["children"][site.name], **settings}
        return aws, replace(site, connection={**site.connection, "children": {site.name: child}})

    return change


DEFECTS = {
    "another-group": (_site(proposals="aes256gcm16-prfsha384-modp2048"), "Phase1: AWS accepts none of"),
    "another-cipher": (_child(esp_proposals="aes128gcm16-ecp384"), "Phase2: AWS accepts none of"),
    "no-group": (_child(esp_proposals="aes256gcm16"), "Phase2: AWS accepts none of"),
    "weak-and-strong": (
        _site(proposals="aes256gcm16-prfsha384-ecp384,aes128-sha1-modp1024"),
        "Phase1: AWS accepts only part of",
    ),
    "aws-accepts-less": (_aws(tunnel1Phase1IntegrityAlgorithms=["SHA2-256"]), "Phase1: AWS accepts none of"),
    "ikev1-too": (_aws(tunnel1IkeVersions=["ikev1", "ikev2"]), "one side does not use IKEv2"),
    "ike-lives-as-long": (_site(rekey_time="28800s"), "Phase1: rekey_time 28800s is not below"),
    "child-lives-as-long": (_child(rekey_time="3590s"), "Phase2: rekey_time 3590s is not below"),
    "aws-lives-shorter": (_aws(tunnel1Phase2LifetimeSeconds=900), "Phase2: rekey_time 3000s is not below"),
    "a-small-window": (_child(replay_window="32"), "the replay window"),
    "both-initiate": (_aws(tunnel1StartupAction="start"), "both sides initiate"),
    "no-side-initiates": (_child(start_action="none"), "no side initiates"),
    "another-identity": (_site(local={"id": "gate.cellar"}), "local id of the site"),
    "another-identity-of-aws": (_site(remote={"id": "203.0.113.1"}), "remote id of the site"),
    "another-block-inside": (_aws(tunnel1InsideCidr="169.254.99.0/30"), "inside address of the site is"),
    "the-ends-swapped": (
        lambda aws, site: (aws, replace(site, inside="169.254.64.9/30")),
        "inside address of the site is",
    ),
    "another-asn-of-aws": (lambda aws, site: (replace(aws, asn=64513), site), "ASN of AWS is"),
    "another-asn-of-the-site": (_customer_gateway(bgpAsn="65011"), "ASN of the site is"),
    "one-asn-for-both": (lambda aws, site: (replace(aws, asn=site.asn), site), "both sides have the same ASN"),
    "no-bgp": (_aws(staticRoutesOnly=True), "AWS does not use BGP"),
}


@pytest.mark.parametrize(("change", "message"), DEFECTS.values(), ids=DEFECTS)
def test_a_difference_is_reported(change: Change, message: str) -> None:
    """One seeded difference at either end is found and reported."""
    aws, site = aws_sides("transit")[f"{REGION}-1"], site_sides(SMALL)[f"{REGION}-1"]

    lines = differences(*change(aws, site))

    assert any(line.startswith(message) for line in lines)
