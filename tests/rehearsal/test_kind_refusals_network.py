"""What AWS refuses of the network's kinds and moto would let pass, told by AWS's own codes; nothing stays half made."""

from typing import Any

import pytest

from bedplate.rehearsal.kinds import KINDS
from bedplate.rehearsal.refusal import Refusal
from tests.support import defects_network, defects_transit
from tests.support.census import census
from tests.support.specimen import Given, Specimen
from tests.support.specimens_network import NETWORK
from tests.support.world import World

pytestmark = pytest.mark.nightly

SPECIMENS: dict[str, Specimen] = {each.token.rpartition(":")[2]: each for each in reversed(NETWORK)}
# Types of two packages may have one name: those of transit gateways come last in it, and go by another here.
SPECIMENS |= {
    f"Transit{short}": next(each for each in NETWORK if each.token == f"aws:ec2transitgateway/{module}:{name}")
    for short, module, name in (
        ("Table", "routeTable", "RouteTable"),
        ("Association", "routeTableAssociation", "RouteTableAssociation"),
        ("Route", "route", "Route"),
    )
}
SPECIMENS |= {"Interface": next(each for each in NETWORK if each.form == "interface")}
DEFECTS = (*defects_network.DEFECTS, *defects_transit.DEFECTS)


def inputs_of(name: str, world: World, spoiled: Given) -> dict[str, Any]:
    """Return a specimen's inputs with some of them spoiled; what is spoiled to None is left out."""
    specimen = SPECIMENS[name]
    good = {**KINDS[specimen.token].defaults, **specimen.inputs_in(world)}
    bad = spoiled(world) if callable(spoiled) else spoiled
    return {key: value for key, value in {**good, **bad}.items() if value is not None}


@pytest.mark.parametrize(("name", "spoiled", "code"), DEFECTS)
def test_what_aws_refuses_is_refused_and_leaves_nothing(name: str, spoiled: Given, code: str, world: World) -> None:
    """A refused create has AWS's code, and all that it had made is gone."""
    kind, inputs = KINDS[SPECIMENS[name].token], inputs_of(name, world, spoiled)
    before = census(world.aws)

    with pytest.raises(Refusal) as refused:
        kind.create(world.aws, inputs)

    assert refused.value.code == code
    assert census(world.aws) == before


def test_a_public_nat_gateway_needs_a_way_out(world: World) -> None:
    """Without an internet gateway in its VPC AWS makes a NAT gateway, and it fails."""
    kind = KINDS["aws:ec2/natGateway:NatGateway"]
    inputs = {"subnetId": world.subnet, "allocationId": world.address, "connectivityType": "public"}

    with pytest.raises(Refusal, match=r"Gateway\.NotAttached"):
        kind.create(world.aws, inputs)

    assert world.gateway
    assert kind.create(world.aws, inputs)
