"""Groups whose machines EC2 would never start: their interfaces, their placement, the tags of what a launch makes."""

from typing import Any

import pytest

from bedplate.rehearsal.kinds import KINDS
from bedplate.rehearsal.refusal import Refusal
from bedplate.rehearsal.unknown import UNKNOWN
from tests.support.services import IMAGE, fresh
from tests.support.world import World

GROUP = KINDS["aws:autoscaling/group:Group"]
TEMPLATE = KINDS["aws:ec2/launchTemplate:LaunchTemplate"]
NEAR = KINDS["aws:ec2/placementGroup:PlacementGroup"]
SPOT = {"onDemandPercentageAboveBaseCapacity": 0, "spotAllocationStrategy": "price-capacity-optimized"}


def _nic(card: int, device: int, kind: str = "efa-only") -> dict[str, Any]:
    return {"networkCardIndex": card, "deviceIndex": device, "interfaceType": kind}


def _made(world: World, types: tuple[str, ...], launch: dict[str, Any], **group: Any) -> str:  # noqa: ANN401
    """Make a template and a group of it in the world's first subnet; return the group's name."""
    inputs = {"name": fresh("start"), "imageId": IMAGE, "instanceType": types[0], **launch}
    ident = TEMPLATE.create(world.aws, inputs)
    one = {"launchTemplate": {"id": ident, "version": "1"}}
    several = {
        "mixedInstancesPolicy": {
            "instancesDistribution": group.pop("spread", {}),
            "launchTemplate": {
                "launchTemplateSpecification": {"launchTemplateId": ident, "version": "1"},
                "overrides": [{"instanceType": each} for each in types],
            },
        }
    }
    asked = {"name": fresh("pool"), "minSize": 0, "maxSize": 4, "vpcZoneIdentifiers": [world.subnet], **group}
    return GROUP.create(world.aws, {**GROUP.defaults, **asked, **(one if len(types) == 1 else several)})


def _near(world: World) -> str:
    return NEAR.create(world.aws, {"name": fresh("near"), "strategy": "cluster"})


@pytest.mark.parametrize(
    ("types", "nics", "told"),
    [
        (("p4d.24xlarge",), [_nic(0, 0, "interface"), _nic(0, 1), _nic(1, 0), _nic(2, 0), _nic(3, 0)], ""),
        (("g5.12xlarge", "g5.24xlarge"), [_nic(0, 0, "efa")], ""),
        (("p4d.24xlarge",), [_nic(0, 0, "interface"), _nic(4, 0)], "p4d.24xlarge has no network card 4"),
        (
            ("p5.48xlarge",),
            [_nic(0, 0, "interface"), _nic(1, 2)],
            "takes 2 interfaces, with device indexes from 0 to 1",
        ),
        (("c6in.large",), [_nic(0, n, "interface") for n in range(4)], "takes 3 interfaces"),
        (("m7i.large",), [_nic(0, 0, "efa")], "takes no interface of the type efa"),
        (("g5.12xlarge", "g5.xlarge"), [_nic(0, 0, "efa")], "the network card 0 of g5.xlarge takes no interface"),
        (("g5.12xlarge",), [_nic(0, 0, "efa"), _nic(0, 1)], "g5.12xlarge has at most 1 EFA interfaces, not 2"),
    ],
)
def test_interfaces_fit_every_type_of_a_group(
    types: tuple[str, ...], nics: list[dict[str, Any]], told: str, world: World
) -> None:
    """A card that a type lacks, too many on one, or an EFA where there is none: EC2 would start no such machine."""
    launch = {"networkInterfaces": nics}

    if told:
        with pytest.raises(Refusal, match=told):
            _made(world, types, launch)
    else:
        assert _made(world, types, launch)


@pytest.mark.parametrize(
    ("kind", "zones", "told"),
    [
        ("c7i.large", "a", ""),
        ("t3.large", "a", "t3.large knows no strategy cluster"),
        ("c7i.large", "ab", "cannot span us-west-2a, us-west-2b"),
    ],
)
@pytest.mark.parametrize("whose", ["template", "group"])
def test_machines_fit_their_placement_group(kind: str, zones: str, told: str, whose: str, world: World) -> None:
    """A cluster stands in one zone, and takes no burstable type; whoever names the placement group."""
    near, subnets = _near(world), [world.subnet, world.other_subnet][: len(zones)]
    launch = {"placement": {"groupName": near}} if whose == "template" else {}
    group = {"placementGroup": near} if whose == "group" else {}

    if told:
        with pytest.raises(Refusal, match=told):
            _made(world, (kind,), launch, vpcZoneIdentifiers=subnets, **group)
    else:
        assert _made(world, (kind,), launch, vpcZoneIdentifiers=subnets, **group)


def test_a_capacity_block_stands_in_no_placement_group(world: World) -> None:
    """Not by the group's own word either, which the template knows nothing of."""
    launch = {"instanceMarketOptions": {"marketType": "capacity-block"}}

    assert _made(world, ("p4d.24xlarge",), launch)
    with pytest.raises(Refusal, match="a capacity block takes no placement group"):
        _made(world, ("p4d.24xlarge",), launch, placementGroup=_near(world))


def test_a_capacity_reservation_excludes_a_placement_group(world: World) -> None:
    """Unless it was created in the group, EC2 never finds capacity, and the rehearsal creates none there."""
    target = {"capacityReservationId": "cr-0123456789abcdef0"}
    launch = {"capacityReservationSpecification": {"capacityReservationTarget": target}}

    assert _made(world, ("c7i.large",), launch)
    assert list(TEMPLATE.complaints(world.aws, {"placement": {"groupName": "near"}, **launch}))
    with pytest.raises(Refusal, match="was not created in the placement group"):
        _made(world, ("c7i.large",), launch, placementGroup=_near(world))


def test_a_spot_request_is_tagged_where_there_is_one(world: World) -> None:
    """On demand, EC2 refuses each launch that tags a request."""
    launch = {"tagSpecifications": [{"resourceType": "spot-instances-request", "tags": {"owner": "lab"}}]}
    types = ("c7i.large", "m7i.large")

    assert _made(world, types, launch, spread=SPOT)
    assert _made(world, ("c7i.large",), {**launch, "instanceMarketOptions": {"marketType": "spot"}})
    with pytest.raises(Refusal, match="a launch on demand makes none"):
        _made(world, types, launch, spread={**SPOT, "onDemandPercentageAboveBaseCapacity": 100})
    with pytest.raises(Refusal, match="a launch on demand makes none"):
        _made(world, ("c7i.large",), launch)


def test_what_a_preview_does_not_know_yet_is_passed_over(world: World) -> None:
    """The name of a placement group that the same program makes is told when it is made."""
    block = {"instanceMarketOptions": {"marketType": "capacity-block"}}

    assert not list(TEMPLATE.complaints(world.aws, {"placement": {"groupName": UNKNOWN}, **block}))
    assert list(TEMPLATE.complaints(world.aws, {"placement": {"groupName": "near"}, **block}))
