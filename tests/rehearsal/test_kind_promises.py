"""The promises of every resource kind, tested with its fixture in the simulated AWS."""

from collections.abc import Mapping
from typing import Any

import pytest

from bedplate.account.client import iam_action
from bedplate.rehearsal import schema
from bedplate.rehearsal.kind import Change
from bedplate.rehearsal.kinds import KINDS
from bedplate.rehearsal.simulation import Simulation, client_of
from bedplate.rehearsal.state import ResourceError
from bedplate.rehearsal.wire import UNKNOWN
from docs.generator.aws_account import needed_actions
from tests.testlab.kinds.network import NETWORK
from tests.testlab.kinds.storage import SERVICES
from tests.testlab.kinds.world import KindFixture, World
from tests.testlab.rehearsal.live import census

FIXTURES = (*NETWORK, *SERVICES)
TAGS = {"Name": "fixture", "fleet": "lab"}
TAGGABLE = [
    fixture for fixture in FIXTURES if KINDS[fixture.token].inputs.get("tags") and "tags" not in fixture.not_returned
]


@pytest.fixture
def other_world(simulation: Simulation) -> World:
    """Return a new world in a region with few resources, where a census is fast."""
    return World(simulation.region("eu-north-1"))


def valid_inputs(fixture: KindFixture, world: World) -> dict[str, Any]:
    """Return the inputs of a fixture with the defaults of the provider."""
    return {**KINDS[fixture.token].defaults, **fixture.inputs_in(world)}


def flatten(value: object) -> set[str]:
    """Return all scalar values inside a value, as strings."""
    inner = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else None
    return {str(value)} if inner is None else {leaf for item in inner for leaf in flatten(item)}


def test_every_kind_has_a_fixture() -> None:
    """A kind without a fixture is not tested."""
    assert {fixture.token for fixture in FIXTURES} == set(KINDS)


@pytest.mark.parametrize("fixture", FIXTURES, ids=str)
def test_valid_inputs_have_no_errors(fixture: KindFixture, world: World) -> None:
    """The checks of a kind accept what AWS accepts."""
    errors = list(KINDS[fixture.token].complaints(world.aws, valid_inputs(fixture, world)))

    assert errors == []


@pytest.mark.parametrize("token", sorted(KINDS))
def test_checks_accept_unknown_values(token: str, world: World) -> None:
    """In a preview any input may be unknown; checks skip it."""
    inputs = dict.fromkeys(KINDS[token].inputs, UNKNOWN)

    list(KINDS[token].complaints(world.aws, inputs))


@pytest.mark.parametrize("token", sorted(KINDS))
def test_names_of_inputs_and_outputs_are_those_of_the_schema(token: str) -> None:
    """Every name in a row is an input or output of the SDK class."""
    kind = KINDS[token]

    assert set(kind.inputs) <= schema.inputs(token)
    assert kind.defaults.keys() | kind.computed | kind.sets <= kind.inputs.keys()
    assert kind.changed_by_update <= schema.outputs(token).keys()


@pytest.mark.parametrize("fixture", FIXTURES, ids=str)
def test_aws_returns_every_input(fixture: KindFixture, world: World) -> None:
    """No input is dropped: the description by AWS contains it."""
    kind, inputs = KINDS[fixture.token], valid_inputs(fixture, world)

    ident = kind.create(world.aws, inputs)

    returned = flatten(fixture.read_back(world.aws, ident, inputs))
    skipped = {*fixture.not_returned, *kind.defaults}
    assert flatten([value for key, value in inputs.items() if key not in skipped]) <= returned


@pytest.mark.parametrize("fixture", FIXTURES, ids=str)
def test_outputs_are_those_of_the_schema(fixture: KindFixture, world: World) -> None:
    """Outputs have the names of the provider, not of boto3."""
    kind, inputs = KINDS[fixture.token], valid_inputs(fixture, world)

    outputs = kind.read(world.aws, kind.create(world.aws, inputs), inputs)

    assert outputs.keys() <= schema.outputs(fixture.token).keys()
    assert "arn" not in schema.outputs(fixture.token) or outputs.get("arn")


@pytest.mark.parametrize("fixture", FIXTURES, ids=str)
def test_updates_change_the_resource_in_aws(fixture: KindFixture, world: World) -> None:
    """Each input that a kind updates changes the description by AWS."""
    kind, inputs = KINDS[fixture.token], valid_inputs(fixture, world)
    ident = kind.create(world.aws, inputs)

    for key, value in fixture.changes_in(world).items():
        before = fixture.read_back(world.aws, ident, inputs)
        changed = {**inputs, key: value}
        kind.update(world.aws, ident, inputs, changed)
        assert fixture.read_back(world.aws, ident, changed) != before, key
        inputs = changed
    assert kind.read(world.aws, ident, inputs).keys() <= schema.outputs(fixture.token).keys()


def test_every_updatable_input_is_tested(world: World) -> None:
    """A fixture changes each updatable input, or lists it as not returned by AWS."""
    untried = {
        token: missing for token, kind in KINDS.items() if (missing := _updated(kind.inputs) - _tried(token, world))
    }

    assert untried == {}


def _updated(inputs: Mapping[str, Change]) -> set[str]:
    return {key for key, change in inputs.items() if change is Change.UPDATES} - {"tags"}


def _tried(token: str, world: World) -> set[str]:
    fixtures = [fixture for fixture in FIXTURES if fixture.token == token]
    return {key for fixture in fixtures for key in (*fixture.changes_in(world), *fixture.not_returned)}


@pytest.mark.parametrize("fixture", TAGGABLE, ids=str)
def test_tags_are_set_and_removed(fixture: KindFixture, world: World) -> None:
    """Create sets tags, update changes and removes them."""
    kind, inputs = KINDS[fixture.token], valid_inputs(fixture, world)
    tagged = {**inputs, "tags": TAGS}
    ident = kind.create(world.aws, tagged)

    before = flatten(fixture.read_back(world.aws, ident, tagged))
    kind.update(world.aws, ident, tagged, {**inputs, "tags": {"Name": "renamed"}})

    after = flatten(fixture.read_back(world.aws, ident, inputs))
    assert flatten(TAGS) <= before
    assert "renamed" in after
    assert not after & {"fixture", "lab"}


@pytest.mark.parametrize("fixture", [fixture for fixture in FIXTURES if not fixture.adopted], ids=str)
def test_delete_removes_everything(fixture: KindFixture, other_world: World) -> None:
    """Delete removes the resource and all that create added."""
    kind, aws, inputs = KINDS[fixture.token], other_world.aws, valid_inputs(fixture, other_world)
    before = census(aws)
    ident = kind.create(aws, inputs)
    outputs = {**schema.outputs(fixture.token), **inputs, **kind.read(aws, ident, inputs)}

    kind.delete(aws, ident, outputs)

    assert census(aws) == before
    with pytest.raises(ResourceError):
        kind.read(aws, ident, inputs)


@pytest.mark.parametrize("fixture", FIXTURES, ids=str)
def test_an_update_to_the_same_inputs_changes_nothing(fixture: KindFixture, world: World) -> None:
    """The description by AWS stays the same."""
    kind, inputs = KINDS[fixture.token], valid_inputs(fixture, world)
    ident = kind.create(world.aws, inputs)
    before = fixture.read_back(world.aws, ident, inputs)

    kind.update(world.aws, ident, inputs, inputs)

    assert fixture.read_back(world.aws, ident, inputs) == before


# Actions that delete a setting of a bucket, and other names of operations that bedplate's clients do not call.
OTHER_ACTIONS = {
    "CreateBudget": "ModifyBudget",
    "DeleteBucketEncryption": "PutEncryptionConfiguration",
    "DeleteBucketLifecycle": "PutLifecycleConfiguration",
    "DeleteBucketOwnershipControls": "PutBucketOwnershipControls",
    "DeleteBucketReplication": "PutReplicationConfiguration",
    "DeleteBucketTagging": "PutBucketTagging",
    "DeleteBudget": "ModifyBudget",
    "DeletePublicAccessBlock": "PutBucketPublicAccessBlock",
    "GetBucketReplication": "GetReplicationConfiguration",
    "PutBucketReplication": "PutReplicationConfiguration",
    "UpdateBudget": "ModifyBudget",
}
# Calls by which a model does what AWS does by itself, such as the interface that AWS makes for a NAT gateway.
OF_THE_MODEL = {
    "ec2:CreateNetworkInterface",
    "ec2:CreateRoute",
    "ec2:DeleteNetworkAcl",
    "ec2:DeleteNetworkInterface",
    "ec2:DeleteRoute",
    "s3:ListBuckets",
    "sns:ListTopics",
}


@pytest.mark.parametrize("fixture", [fixture for fixture in FIXTURES if fixture.token in needed_actions()], ids=str)
def test_deployers_may_make_the_calls_of_each_model(
    fixture: KindFixture, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The provider calls the same APIs as a model to create, read and update; it reads more."""
    kind, inputs, changes = KINDS[fixture.token], valid_inputs(fixture, world), fixture.changes_in(world)
    calls: set[tuple[str, str]] = set()
    call = Simulation.call

    def record(self: Simulation, service: str, region: str, operation: str, params: Mapping[str, Any]) -> Any:  # noqa: ANN401
        calls.add((service, client_of(service, region).meta.method_to_api_mapping[operation]))
        return call(self, service, region, operation, params)

    monkeypatch.setattr(Simulation, "call", record)
    ident = kind.create(world.aws, inputs)
    kind.read(world.aws, ident, inputs)
    for key, value in changes.items():
        kind.update(world.aws, ident, inputs, {**inputs, key: value})
        inputs = {**inputs, key: value}

    actions = {iam_action(service, OTHER_ACTIONS.get(operation, operation)) for service, operation in calls}
    assert actions - OF_THE_MODEL <= {*needed_actions()[fixture.token]}
