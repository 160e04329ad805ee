"""The rehearsal beside a recording of the real engine: one program, seven versions, every difference with its reason.

The engine ran with a stand-in for the AWS provider; where the two providers differ, the rehearsal is on the side of
the real one, and the table says so.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from bedplate.rehearsal.kinds import KINDS
from bedplate.rehearsal.simulation import running
from bedplate.rehearsal.stack import Run, Stack, World, run
from tests.testlab.rehearsal.agreement import LAST, declare, declare_shared
from tests.testlab.rehearsal.recorded_agreement import RECORD, Portrait, Story, rehearsed_portrait, rehearsed_story

RECORDED: Mapping[str, Any] = json.loads(RECORD.read_text(encoding="utf-8"))
ACCOUNT = "123456789012"  # the recording's
VERSIONS = range(1, LAST + 1)
Runs = Mapping[int, tuple[Run, Run]]

# What only the engine has.
THE_ENGINES_OWN = {
    "pulumi:providers:pulumi::default": "it serves the engine's own types, such as StackReference, by a provider",
}
# Of these the engine keeps more than the rehearsal.
KEPT_BY_THE_ENGINE = {
    ("pulumi:pulumi:StackReference::organization/shared/prod", "provider"): "its own provider, as above",
}
_IN_PLACE = "the real provider changes it in place; the stand-in replaces whatever it cannot update"
_CYCLE = ("create-replacement", "replace")
_POOL = "bedplate:test:Machines$aws:autoscaling/group:Group::pool"
_NET = "bedplate:test:Site$bedplate:test:Net$aws:ec2/"


def _updated(*keys: str) -> list[list[Any]]:
    return [["update", [], list(keys)]]


def _replaced(forcing: list[str], *keys: str) -> list[list[Any]]:
    return [*([op, forcing, list(keys or forcing)] for op in _CYCLE), ["delete-replaced", [], []]]


# Version and URN: what the rehearsal does instead, and why.
AS_THE_REAL_PROVIDER: Mapping[tuple[int, str], tuple[list[list[Any]], str]] = {
    (3, _POOL): (_updated("launchTemplate", "vpcZoneIdentifiers"), _IN_PLACE),
    (6, _POOL): (_updated("launchTemplate"), _IN_PLACE),
    (3, f"{_NET}internetGateway:InternetGateway::main-gateway"): (_updated("vpcId"), _IN_PLACE),
    (3, f"{_NET}route:Route::main-out"): (_replaced(["routeTableId"]), "a gateway that stays is no change"),
    **{
        (3, f"{_NET}subnet:Subnet$aws:ec2/routeTableAssociation:RouteTableAssociation::main-tie-{n}"): (
            _replaced(["subnetId"], "routeTableId", "subnetId"),
            "the real provider moves an association to another table in place",
        )
        for n in (0, 1)
    },
}


@pytest.fixture(scope="module")
def runs() -> Iterator[Runs]:
    """Preview and run every version of the program in turn."""
    with running(ACCOUNT) as simulation:
        world = World(simulation)
        run(Stack("prod", "shared", declare_shared), world)
        yield {version: _previewed_and_run(version, world) for version in VERSIONS}


def _previewed_and_run(version: int, world: World) -> tuple[Run, Run]:
    stack = Stack("t", "lab", lambda: declare(version))
    return run(stack, world, preview=True), run(stack, world)


@pytest.fixture(scope="module")
def portrait(runs: Runs) -> Portrait:
    """Return the resources as the first version left them."""
    return rehearsed_portrait(runs[1][1].snapshot)


def _filled_in(urn: str, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return inputs with the real provider's defaults, which the stand-in does not fill in."""
    kind = KINDS.get(urn.rpartition("::")[0].rpartition("$")[2])
    return {**(kind.defaults if kind else {}), **inputs}


def _agreed(version: int) -> Story:
    told = dict(RECORDED["stories"][str(version)])
    return told | {urn: story for (when, urn), (story, _) in AS_THE_REAL_PROVIDER.items() if when == version}


def test_nothing_fails(runs: Runs) -> None:
    """The engine made every version, so the rehearsal does."""
    assert [failure for pair in runs.values() for done in pair for failure in done.failures] == []


def test_the_resources_are_the_engines(portrait: Portrait) -> None:
    """Every URN of the engine's state is there, save what is its own, and no other."""
    assert portrait.keys() == RECORDED["resources"].keys() - THE_ENGINES_OWN


@pytest.mark.parametrize(
    "field", ["parent", "dependencies", "property_dependencies", "protect", "provider", "external"]
)
def test_what_surrounds_a_resource_is_the_engines(portrait: Portrait, field: str) -> None:
    """Parents, dependencies, protection and providers are those of the engine's state."""
    recorded = RECORDED["resources"]

    wrong = [
        urn
        for urn, one in portrait.items()
        if (urn, field) not in KEPT_BY_THE_ENGINE and one.get(field) != recorded[urn].get(field)
    ]

    assert wrong == []


def test_inputs_are_the_engines_and_the_providers(portrait: Portrait) -> None:
    """Inputs are as registered, with automatic names, and with the real provider's defaults filled in."""
    given = {
        urn: one["inputs"]
        for urn, one in RECORDED["resources"].items()
        if "inputs" in one and (urn, "inputs") not in KEPT_BY_THE_ENGINE
    }

    found = {urn: portrait[urn]["inputs"] for urn in given}

    assert found == {urn: _filled_in(urn, inputs) for urn, inputs in given.items()}


@pytest.mark.parametrize("version", VERSIONS)
def test_a_run_takes_the_engines_steps(runs: Runs, version: int) -> None:
    """Each resource takes the engine's operations in the engine's order, for the same reasons."""
    assert rehearsed_story(runs[version][1].steps) == _agreed(version)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_preview_tells_the_engines_steps(runs: Runs, version: int) -> None:
    """The engine's preview told what its run did; so does the rehearsal's."""
    assert rehearsed_story(runs[version][0].steps) == _agreed(version)


def test_every_difference_is_one() -> None:
    """The table holds nothing in which the rehearsal has come to agree with the engine."""
    recorded = RECORDED["stories"]

    assert all(recorded[str(when)].get(urn) != story for (when, urn), (story, _) in AS_THE_REAL_PROVIDER.items())
