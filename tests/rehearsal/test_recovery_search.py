"""The search for objects that a killed run created, by the resource models of the rehearsal."""

import pkgutil
from collections.abc import Iterator
from importlib import import_module
from types import SimpleNamespace
from typing import cast

import pytest

import stacks
from bedplate.account.client import AwsClient, Creation, Session
from bedplate.account.objects import FINDERS, REPEATABLE, find_ids
from bedplate.rehearsal import schema
from bedplate.rehearsal.kinds import KINDS
from bedplate.rehearsal.simulation import client_of
from stacks.options import RESOURCE, STACK
from tests.testlab.kinds.network import NETWORK
from tests.testlab.kinds.storage import SERVICES
from tests.testlab.kinds.world import KindFixture, World

# Of the rehearsal itself: moto has none.
FAKED = "aws:ec2/placementGroup:PlacementGroup"
# One fixture a type.
FIXTURES = {
    fixture.token: fixture
    for fixture in reversed((*NETWORK, *SERVICES))
    if fixture.token in FINDERS and fixture.token != FAKED
}


def declared_types() -> Iterator[str]:
    """Yield the types that the modules of the stacks import."""
    for module in pkgutil.walk_packages(stacks.__path__, "stacks."):
        for value in vars(import_module(module.name)).values():
            if token := getattr(value, "pulumi_type", ""):
                yield token


def test_every_declared_type_has_a_rule() -> None:
    """An operation of another type needs an operator who looks for its object."""
    resources = {token for token in declared_types() if token in KINDS}

    assert len(resources) > 60
    assert resources == FINDERS.keys() | REPEATABLE
    assert not FINDERS.keys() & REPEATABLE


@pytest.mark.parametrize("fixture", FIXTURES.values(), ids=str)
def test_an_object_is_found_by_the_inputs_of_its_creation(fixture: KindFixture, world: World) -> None:
    """The id is that of the provider; before the creation nothing is found."""
    kind, name = KINDS[fixture.token], f"lab-{fixture.token.rpartition(':')[2].lower()}"
    tags = {STACK: "lab.us-west-2", RESOURCE: name}
    inputs = {**kind.defaults, **fixture.inputs_in(world)}
    if kind.naming:
        inputs.setdefault(kind.naming.key, name)
    if fixture.token.startswith("aws:route53/resolver"):
        inputs["name"] = name
    if "tagsAll" in schema.outputs(fixture.token):
        inputs["tags"] = tags
    session = SimpleNamespace(client=lambda service, *, region_name, **_: client_of(service, region_name))
    client = AwsClient(cast("Session", session))
    creation = Creation(fixture.token, world.aws.region, inputs, tags)

    before = find_ids(client, creation)
    ident = kind.create(world.aws, inputs)

    assert (before, find_ids(client, creation)) == ((), (ident,))
