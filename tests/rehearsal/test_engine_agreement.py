"""Tests of the rehearsal against a recording of Pulumi's engine: one program in seven versions.

The engine ran with a fake AWS provider. `AS_THE_REAL_PROVIDER` lists each difference with its reason: there, the
rehearsal behaves as the real provider does.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from bedplate.rehearsal.kinds import KINDS
from bedplate.rehearsal.simulation import running
from bedplate.rehearsal.stack import Run, SharedState, Stack, run
from tests.testlab.rehearsal.agreement import LAST, declare, declare_shared
from tests.testlab.rehearsal.recorded_agreement import (
    RECORD,
    Resources,
    StepsByUrn,
    rehearsed_resources,
    rehearsed_steps,
)

RECORDED: Mapping[str, Any] = json.loads(RECORD.read_text(encoding="utf-8"))
ACCOUNT = "123456789012"  # as in the recording
VERSIONS = range(1, LAST + 1)
Runs = Mapping[int, tuple[Run, Run]]

# Resources that only the engine has, with the reason.
ONLY_IN_ENGINE = {
    "pulumi:providers:pulumi::default": "the engine uses a provider for its built-in types, such as StackReference",
}
# Fields that only the engine fills in, with the reason.
FIELDS_ONLY_IN_ENGINE = {
    ("pulumi:pulumi:StackReference::organization/shared/prod", "provider"): "the provider of built-in types, as above",
}
_IN_PLACE = "the real provider updates it in place; the fake provider replaces all that it cannot update"
_REPLACE_OPS = ("create-replacement", "replace")
_POOL = "bedplate:test:Machines$aws:autoscaling/group:Group::pool"
_NET = "bedplate:test:Site$bedplate:test:Net$aws:ec2/"


def _updated(*keys: str) -> list[list[Any]]:
    return [["update", [], list(keys)]]


def _replaced(forcing: list[str], *keys: str) -> list[list[Any]]:
    return [*([op, forcing, list(keys or forcing)] for op in _REPLACE_OPS), ["delete-replaced", [], []]]


# (Version, URN) -> the steps of the rehearsal, and the reason for the difference from the engine.
AS_THE_REAL_PROVIDER: Mapping[tuple[int, str], tuple[list[list[Any]], str]] = {
    (3, _POOL): (_updated("launchTemplate", "vpcZoneIdentifiers"), _IN_PLACE),
    (6, _POOL): (_updated("launchTemplate"), _IN_PLACE),
    (3, f"{_NET}internetGateway:InternetGateway::main-gateway"): (_updated("vpcId"), _IN_PLACE),
    (3, f"{_NET}route:Route::main-out"): (_replaced(["routeTableId"]), "the gateway did not change"),
    **{
        (3, f"{_NET}subnet:Subnet$aws:ec2/routeTableAssociation:RouteTableAssociation::main-tie-{n}"): (
            _replaced(["subnetId"], "routeTableId", "subnetId"),
            "the real provider changes the route table of an association in place",
        )
        for n in (0, 1)
    },
}


@pytest.fixture(scope="module")
def runs() -> Iterator[Runs]:
    """Preview and run each version of the program in turn."""
    with running(ACCOUNT) as simulation:
        world = SharedState(simulation)
        run(Stack("prod", "shared", declare_shared), world)
        yield {version: _previewed_and_run(version, world) for version in VERSIONS}


def _previewed_and_run(version: int, world: SharedState) -> tuple[Run, Run]:
    stack = Stack("t", "lab", lambda: declare(version))
    return run(stack, world, preview=True), run(stack, world)


@pytest.fixture(scope="module")
def resources(runs: Runs) -> Resources:
    """Return the resources after the first version."""
    return rehearsed_resources(runs[1][1].snapshot)


def _with_defaults(urn: str, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return inputs with the defaults of the real provider, which the fake provider does not add."""
    kind = KINDS.get(urn.rpartition("::")[0].rpartition("$")[2])
    return {**(kind.defaults if kind else {}), **inputs}


def _expected_steps(version: int) -> StepsByUrn:
    recorded = dict(RECORDED["stories"][str(version)])
    return recorded | {urn: story for (when, urn), (story, _) in AS_THE_REAL_PROVIDER.items() if when == version}


def test_nothing_fails(runs: Runs) -> None:
    """All versions succeed, as in the engine."""
    assert [failure for pair in runs.values() for result in pair for failure in result.failures] == []


def test_the_urns_are_the_engines(resources: Resources) -> None:
    """The state has the URNs of the engine's state, except for `ONLY_IN_ENGINE`."""
    assert resources.keys() == RECORDED["resources"].keys() - ONLY_IN_ENGINE


@pytest.mark.parametrize(
    "field", ["parent", "dependencies", "property_dependencies", "protect", "provider", "external"]
)
def test_the_fields_of_a_resource_are_the_engines(resources: Resources, field: str) -> None:
    """Parents, dependencies, protection and providers are equal to the engine's state."""
    recorded = RECORDED["resources"]

    wrong = [
        urn
        for urn, resource in resources.items()
        if (urn, field) not in FIELDS_ONLY_IN_ENGINE and resource.get(field) != recorded[urn].get(field)
    ]

    assert wrong == []


def test_inputs_are_the_engines_with_defaults(resources: Resources) -> None:
    """Inputs are equal to the engine's, with automatic names and the defaults of the real provider."""
    recorded = {
        urn: resource["inputs"]
        for urn, resource in RECORDED["resources"].items()
        if "inputs" in resource and (urn, "inputs") not in FIELDS_ONLY_IN_ENGINE
    }

    inputs = {urn: resources[urn]["inputs"] for urn in recorded}

    assert inputs == {urn: _with_defaults(urn, expected) for urn, expected in recorded.items()}


@pytest.mark.parametrize("version", VERSIONS)
def test_a_run_takes_the_engines_steps(runs: Runs, version: int) -> None:
    """Each resource takes the engine's steps in the same order, for the same inputs."""
    assert rehearsed_steps(runs[version][1].steps) == _expected_steps(version)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_preview_lists_the_engines_steps(runs: Runs, version: int) -> None:
    """The engine's preview lists the steps of its run; so does the rehearsal's."""
    assert rehearsed_steps(runs[version][0].steps) == _expected_steps(version)


def test_every_listed_difference_exists() -> None:
    """The list has no entry in which the rehearsal and the engine agree."""
    recorded = RECORDED["stories"]

    assert all(recorded[str(when)].get(urn) != story for (when, urn), (story, _) in AS_THE_REAL_PROVIDER.items())
