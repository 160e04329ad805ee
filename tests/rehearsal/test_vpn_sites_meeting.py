"""AWS's end of each tunnel, as the stacks declare it, and the site's, as its text says it, meet."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache

import pytest

from bedplate.plan import FleetPlan
from bedplate.rehearsal.state import Entry
from bedplate.spec.network import Interconnect
from bedplate.spec.sites import Dials
from tests.testlab.fakes.daemons import read_settings
from tests.testlab.fleets.variants import SITE_SIDE_LAB, cellar, with_gateways
from tests.testlab.rehearsal.meeting import AwsSide, SiteSide, differences, neighbours_told
from tests.testlab.rehearsal.programs import declared
from vpn.sites.files import files_of

# AWS's own number where nobody chose one (EC2 API: CreateVpnGateway).
AMAZON = 64512
REGION = "us-east-1"


# What the larger example is without machines and storage, which are no matter of tunnels: two regions and its site.
SMALL = replace(
    SITE_SIDE_LAB,
    regions=SITE_SIDE_LAB.regions[:2],
    tunnels=tuple(one for one in SITE_SIDE_LAB.tunnels if one.region != SITE_SIDE_LAB.regions[2].name),
    pools=(),
    buckets=(),
    files=(),
    control_plane=None,
)
PLANS = {
    "transit": SMALL,
    "private-gateways": replace(SMALL, interconnect=Interconnect.NONE),
    "dialled-by-aws": with_gateways(SMALL, dials=Dials.AWS),
    "a-number-of-four-bytes": with_gateways(SMALL, asn=4_200_900_001),
}


@cache
def _graph(name: str) -> tuple[Entry, ...]:
    return tuple(entry for stack in declared(PLANS[name]).values() for entry in stack)


def aws_sides(name: str) -> dict[str, AwsSide]:
    """Return AWS's ends by `<region>-<number>`, as the stacks declare them."""
    return dict(_sides(_graph(name)))


def _sides(graph: tuple[Entry, ...]) -> Iterator[tuple[str, AwsSide]]:
    gateways = {entry.name: entry.inputs for entry in graph if entry.type.endswith(":CustomerGateway")}
    numbers = _numbers(graph)
    for entry in graph:
        if entry.type.endswith(":VpnConnection"):
            region = entry.name.removeprefix("lab-cellar-")
            for number in (1, 2):
                side = AwsSide(number, entry.inputs, gateways[entry.name], numbers.get(region, AMAZON))
                yield f"{region}-{number}", side


def _numbers(graph: tuple[Entry, ...]) -> dict[str, int]:
    """Return the number of each region's transit gateway."""
    found = [entry for entry in graph if entry.type.endswith(":TransitGateway")]
    return {
        str(entry.inputs["description"]).rpartition(" in ")[2]: int(entry.inputs["amazonSideAsn"]) for entry in found
    }


def site_sides(plan: FleetPlan) -> dict[str, SiteSide]:
    """Return the site's ends by the same names, as its text says them."""
    files = files_of(cellar(plan))
    asn, neighbours = neighbours_told(next(file.text for file in files if file.path.name == "frr.conf"))
    rows = [row.split() for file in files if file.path.name == "table" for row in file.text.splitlines()]
    inside = {row[0]: row[2] for row in rows}
    texts = [read_settings(file.text) for file in files if file.path.name == "swanctl.conf"]
    connections = {name: one for text in texts for name, one in text["connections"].items()}
    return {name: SiteSide(name, one, inside[name], neighbours, asn) for name, one in connections.items()}


@pytest.mark.parametrize("name", PLANS)
def test_both_ends_meet(name: str) -> None:
    """Every tunnel has two ends, and they agree on all that must agree."""
    theirs, ours = aws_sides(name), site_sides(PLANS[name])

    assert set(theirs) == set(ours)
    assert {one: differences(theirs[one], ours[one]) for one in ours} == dict.fromkeys(ours, ())


def _aws(**options: object) -> Callable[[AwsSide, SiteSide], tuple[AwsSide, SiteSide]]:
    return lambda aws, site: (replace(aws, connection={**aws.connection, **options}), site)


def _known(**values: object) -> Callable[[AwsSide, SiteSide], tuple[AwsSide, SiteSide]]:
    return lambda aws, site: (replace(aws, site_gateway={**aws.site_gateway, **values}), site)


def _site(**settings: object) -> Callable[[AwsSide, SiteSide], tuple[AwsSide, SiteSide]]:
    return lambda aws, site: (aws, replace(site, connection={**site.connection, **settings}))


def _child(**settings: object) -> Callable[[AwsSide, SiteSide], tuple[AwsSide, SiteSide]]:
    def change(aws: AwsSide, site: SiteSide) -> tuple[AwsSide, SiteSide]:
        child = {**site.connection["children"][site.name], **settings}
        return aws, replace(site, connection={**site.connection, "children": {site.name: child}})

    return change


PLANTED = {
    "another-group": (_site(proposals="aes256gcm16-prfsha384-modp2048"), "Phase1: nothing of"),
    "another-cipher": (_child(esp_proposals="aes128gcm16-ecp384"), "Phase2: nothing of"),
    "no-group": (_child(esp_proposals="aes256gcm16"), "Phase2: nothing of"),
    "weak-beside-strong": (
        _site(proposals="aes256gcm16-prfsha384-ecp384,aes128-sha1-modp1024"),
        "Phase1: more is offered",
    ),
    "aws-takes-less": (_aws(tunnel1Phase1IntegrityAlgorithms=["SHA2-256"]), "Phase1: nothing of"),
    "ikev1-too": (_aws(tunnel1IkeVersions=["ikev1", "ikev2"]), "not both IKEv2"),
    "ike-lives-as-long": (_site(rekey_time="28800s"), "Phase1: 28800s is not below"),
    "child-lives-as-long": (_child(rekey_time="3590s"), "Phase2: 3590s is not below"),
    "aws-lives-shorter": (_aws(tunnel1Phase2LifetimeSeconds=900), "Phase2: 3000s is not below"),
    "a-narrow-window": (_child(replay_window="32"), "the replay window"),
    "both-dial": (_aws(tunnel1StartupAction="start"), "both dial"),
    "nobody-dials": (_child(start_action="none"), "nobody dials"),
    "another-identity": (_site(local={"id": "gate.cellar"}), "the site calls itself otherwise"),
    "aws-by-another-name": (_site(remote={"id": "203.0.113.1"}), "AWS is called otherwise"),
    "another-block-inside": (_aws(tunnel1InsideCidr="169.254.99.0/30"), "inside, the site is"),
    "the-ends-swapped": (lambda aws, site: (aws, replace(site, inside="169.254.64.9/30")), "inside, the site is"),
    "another-number-of-aws": (lambda aws, site: (replace(aws, asn=64513), site), "AWS's number is"),
    "another-number-of-the-site": (_known(bgpAsn="65011"), "the site's number is"),
    "one-number-for-both": (lambda aws, site: (replace(aws, asn=site.asn), site), "both have one number"),
    "no-bgp": (_aws(staticRoutesOnly=True), "AWS speaks no BGP"),
}


@pytest.mark.parametrize(("change", "told"), PLANTED.values(), ids=PLANTED)
def test_ends_that_differ_are_told(change: Callable[[AwsSide, SiteSide], tuple[AwsSide, SiteSide]], told: str) -> None:
    """One difference, planted at either end, is found and told."""
    aws, site = aws_sides("transit")[f"{REGION}-1"], site_sides(SMALL)[f"{REGION}-1"]

    found = differences(*change(aws, site))

    assert any(line.startswith(told) for line in found)
