"""What every resource kind promises, tried on a specimen of each in the simulated AWS."""

from collections.abc import Mapping
from typing import Any

import pytest

from bedplate.rehearsal import schema
from bedplate.rehearsal.kind import Change
from bedplate.rehearsal.kinds import KINDS
from bedplate.rehearsal.simulation import Simulation
from bedplate.rehearsal.state import Refusal
from bedplate.rehearsal.wire import UNKNOWN
from tests.testlab.kinds.network import NETWORK
from tests.testlab.kinds.storage import SERVICES
from tests.testlab.kinds.world import Specimen, World
from tests.testlab.rehearsal.live import census

ALL = (*NETWORK, *SERVICES)
TAGS = {"Name": "specimen", "fleet": "lab"}
TAGGABLE = [each for each in ALL if KINDS[each.token].inputs.get("tags") and "tags" not in each.silent]


@pytest.fixture
def quiet_world(simulation: Simulation) -> World:
    """Return a fresh world in a region with few others, where counting all that lives is quick."""
    return World(simulation.region("eu-north-1"))


def full(specimen: Specimen, world: World) -> dict[str, Any]:
    """Return the specimen's inputs with what the provider fills in."""
    return {**KINDS[specimen.token].defaults, **specimen.inputs_in(world)}


def leaves(value: object) -> set[str]:
    """Return the plain values anywhere inside a value, as texts."""
    inner = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else None
    return {str(value)} if inner is None else {leaf for item in inner for leaf in leaves(item)}


def test_every_kind_has_a_specimen() -> None:
    """A kind that no specimen tries is a promise nobody keeps."""
    assert {each.token for each in ALL} == set(KINDS)


@pytest.mark.parametrize("specimen", ALL, ids=str)
def test_good_inputs_draw_no_complaint(specimen: Specimen, world: World) -> None:
    """The rules of a kind pass what AWS takes."""
    complaints = list(KINDS[specimen.token].complaints(world.aws, full(specimen, world)))

    assert complaints == []


@pytest.mark.parametrize("token", sorted(KINDS))
def test_rules_bear_what_a_preview_does_not_know(token: str, world: World) -> None:
    """In a preview any input may be unknown: the rules pass it over."""
    inputs = dict.fromkeys(KINDS[token].inputs, UNKNOWN)

    list(KINDS[token].complaints(world.aws, inputs))


@pytest.mark.parametrize("token", sorted(KINDS))
def test_inputs_and_outputs_go_by_the_names_of_the_schema(token: str) -> None:
    """What a kind names in its row is an input, or an output, of the SDK's type."""
    kind = KINDS[token]

    assert set(kind.inputs) <= schema.inputs(token)
    assert kind.defaults.keys() | kind.computed | kind.sets <= kind.inputs.keys()
    assert kind.moves <= schema.outputs(token).keys()


@pytest.mark.parametrize("specimen", ALL, ids=str)
def test_aws_tells_every_input_back(specimen: Specimen, world: World) -> None:
    """Nothing that a program asks for is dropped: AWS's own description holds it."""
    kind, inputs = KINDS[specimen.token], full(specimen, world)

    ident = kind.create(world.aws, inputs)

    told = leaves(specimen.told(world.aws, ident, inputs))
    quiet = {*specimen.silent, *kind.defaults}
    assert leaves([value for key, value in inputs.items() if key not in quiet]) <= told


@pytest.mark.parametrize("specimen", ALL, ids=str)
def test_outputs_are_those_of_the_schema(specimen: Specimen, world: World) -> None:
    """A program reads the provider's names, never boto3's."""
    kind, inputs = KINDS[specimen.token], full(specimen, world)

    outputs = kind.read(world.aws, kind.create(world.aws, inputs), inputs)

    assert outputs.keys() <= schema.outputs(specimen.token).keys()
    assert "arn" not in schema.outputs(specimen.token) or outputs.get("arn")


@pytest.mark.parametrize("specimen", ALL, ids=str)
def test_changes_in_place_show_in_aws(specimen: Specimen, world: World) -> None:
    """Each input that a kind updates changes what AWS says."""
    kind, inputs = KINDS[specimen.token], full(specimen, world)
    ident = kind.create(world.aws, inputs)

    for key, value in specimen.changes_in(world).items():
        before = specimen.told(world.aws, ident, inputs)
        changed = {**inputs, key: value}
        kind.update(world.aws, ident, inputs, changed)
        assert specimen.told(world.aws, ident, changed) != before, key
        inputs = changed
    assert kind.read(world.aws, ident, inputs).keys() <= schema.outputs(specimen.token).keys()


def test_every_update_is_tried(world: World) -> None:
    """An input that a kind says it updates is changed by a specimen, or is one that AWS is silent on."""
    untried = {
        token: missing for token, kind in KINDS.items() if (missing := _updated(kind.inputs) - _tried(token, world))
    }

    assert untried == {}


def _updated(inputs: Mapping[str, Change]) -> set[str]:
    return {key for key, change in inputs.items() if change is Change.UPDATES} - {"tags"}


def _tried(token: str, world: World) -> set[str]:
    ours = [each for each in ALL if each.token == token]
    return {key for each in ours for key in (*each.changes_in(world), *each.silent)}


@pytest.mark.parametrize("specimen", TAGGABLE, ids=str)
def test_tags_come_and_go(specimen: Specimen, world: World) -> None:
    """Tags are given at the creation, and taken away in place."""
    kind, inputs = KINDS[specimen.token], full(specimen, world)
    tagged = {**inputs, "tags": TAGS}
    ident = kind.create(world.aws, tagged)

    before = leaves(specimen.told(world.aws, ident, tagged))
    kind.update(world.aws, ident, tagged, {**inputs, "tags": {"Name": "renamed"}})

    after = leaves(specimen.told(world.aws, ident, inputs))
    assert leaves(TAGS) <= before
    assert "renamed" in after
    assert not after & {"specimen", "lab"}


@pytest.mark.parametrize("specimen", [each for each in ALL if not each.adopted], ids=str)
def test_deleting_leaves_nothing(specimen: Specimen, quiet_world: World) -> None:
    """What was made is gone, with all that came with it."""
    kind, aws, inputs = KINDS[specimen.token], quiet_world.aws, full(specimen, quiet_world)
    before = census(aws)
    ident = kind.create(aws, inputs)
    outputs = {**schema.outputs(specimen.token), **inputs, **kind.read(aws, ident, inputs)}

    kind.delete(aws, ident, outputs)

    assert census(aws) == before
    with pytest.raises(Refusal):
        kind.read(aws, ident, inputs)


@pytest.mark.parametrize("specimen", ALL, ids=str)
def test_nothing_to_change_changes_nothing(specimen: Specimen, world: World) -> None:
    """An update to the same inputs leaves the resource as it is."""
    kind, inputs = KINDS[specimen.token], full(specimen, world)
    ident = kind.create(world.aws, inputs)
    before = specimen.told(world.aws, ident, inputs)

    kind.update(world.aws, ident, inputs, inputs)

    assert specimen.told(world.aws, ident, inputs) == before
