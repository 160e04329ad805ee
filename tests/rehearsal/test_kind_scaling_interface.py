"""A group whose one machine takes over a network interface: what Auto Scaling asks of it."""

from collections.abc import Iterator
from typing import Any

import pytest

from bedplate.rehearsal.kinds import KINDS
from bedplate.rehearsal.refusal import Refusal
from bedplate.rehearsal.simulation import running
from tests.support.world import World

GROUP = KINDS["aws:autoscaling/group:Group"]
TEMPLATE = KINDS["aws:ec2/launchTemplate:LaunchTemplate"]
SOUND: dict[str, Any] = {"name": "gate", "minSize": 1, "maxSize": 1, "availabilityZones": ["us-west-2a"]}


@pytest.fixture
def world() -> Iterator[World]:
    """Return a world of a simulated AWS of its own: each test gives a template the same name."""
    with running("111122223333") as simulation:
        yield World(simulation.region("us-west-2"))


def _inputs(world: World, spoiled: dict[str, Any]) -> dict[str, Any]:
    template = {
        "name": "gate",
        "imageId": "resolve:ssm:/aws/service/canonical/ubuntu/server/24.04/stable/current/amd64/hvm/ebs-gp3/ami-id",
        "instanceType": "c6in.large",
        "networkInterfaces": [{"deviceIndex": 0, "networkInterfaceId": world.interface}],
    }
    ident = TEMPLATE.create(world.aws, template)
    return {**GROUP.defaults, **SOUND, "launchTemplate": {"id": ident, "version": "1"}, **spoiled}


def test_a_group_of_one_in_the_interfaces_zone_is_taken(world: World) -> None:
    """The subnet is the interface's own, so the group names the zone alone."""
    assert GROUP.create(world.aws, _inputs(world, {})) == "gate"


@pytest.mark.parametrize(
    ("spoiled", "key"),
    [
        ({"availabilityZones": ["us-west-2b"]}, "availabilityZones"),
        ({"availabilityZones": None, "vpcZoneIdentifiers": ["subnet"]}, "vpcZoneIdentifiers"),
        ({"maxSize": 2}, "maxSize"),
    ],
)
def test_a_group_that_does_not_fit_the_interface_is_refused(spoiled: dict[str, Any], key: str, world: World) -> None:
    """Another zone, subnets of its own, or a second machine: none of them would ever start."""
    inputs = _inputs(world, spoiled)
    if inputs.get("vpcZoneIdentifiers"):
        inputs["vpcZoneIdentifiers"] = [world.subnet]

    with pytest.raises(Refusal) as refused:
        GROUP.create(world.aws, inputs)

    assert refused.value.key == key
