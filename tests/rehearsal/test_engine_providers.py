"""Tests of providers: explicit, inherited and default ones, their region, default tags and refused options."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pulumi
import pulumi_aws as aws
import pytest
from pulumi import ResourceOptions

from bedplate.rehearsal.provider import DefaultProvider
from bedplate.rehearsal.simulation import Simulation, running
from bedplate.rehearsal.stack import SharedState, graph, run
from bedplate.rehearsal.state import Op
from tests.testlab.rehearsal.programs import ACCOUNT, changes, entry, parameter, stack, up


@pytest.fixture(scope="module")
def simulation() -> Iterator[Simulation]:
    """Run one simulated AWS for this file, with environment variables that name a real account."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_PROFILE", "production")
        patch.setenv("AWS_ENDPOINT_URL", "http://203.0.113.1")
        patch.setenv("AWS_ACCESS_KEY_ID", "AKIAREAL")
        patch.setenv("AWS_CONFIG_FILE", str(Path(__file__)))
        with running(ACCOUNT) as simulation:
            yield simulation
        assert os.environ["AWS_PROFILE"] == "production"
        assert os.environ["AWS_ACCESS_KEY_ID"] == "AKIAREAL"


@pytest.fixture
def world(simulation: Simulation) -> Iterator[SharedState]:
    """Return a world without stacks; delete the parameters that a test keeps."""
    yield SharedState(simulation)
    for region in ("us-west-2", "eu-north-1"):
        simulation.call("ssm", region, "delete_parameters", {"Names": ["/note", "/other"]})


def _north_provider(**more: object) -> aws.Provider:
    return aws.Provider("north", region="eu-north-1", **more)


def _explicit() -> None:
    parameter("note", opts=ResourceOptions(provider=_north_provider()))


def _inherited() -> None:
    outer = pulumi.ComponentResource("t:t:Box", "outer", opts=ResourceOptions(providers=[_north_provider()]))
    inner = pulumi.ComponentResource("t:t:Box", "inner", opts=ResourceOptions(parent=outer))
    parameter("note", opts=ResourceOptions(parent=inner))


@pytest.mark.parametrize("program", [_explicit, _inherited])
def test_a_resource_is_in_the_region_of_its_provider(world: SharedState, program: Callable[[], None]) -> None:
    """A resource uses its explicit provider, or else that of a parent component."""
    result = up(world, program)

    assert entry(result, "note").outputs["region"] == "eu-north-1"
    assert "::north::" in entry(result, "note").provider


def test_ambient_credentials_and_endpoints_have_no_effect(world: SharedState) -> None:
    """AWS variables of the environment do not change the account of the simulation."""
    result = up(world, lambda: parameter("note"))

    assert f":{ACCOUNT}:" in entry(result, "note").outputs["arn"]


def test_the_default_provider_has_the_stacks_region(world: SharedState) -> None:
    """A resource without a provider uses the default one, with the engine's name for it."""
    result = up(world, lambda: parameter("note"))

    assert entry(result, "note").outputs["region"] == "us-west-2"
    assert entry(result, "note").provider.startswith("urn:pulumi:lab::lab::pulumi:providers:aws::default_")


@pytest.mark.parametrize("disabled", [("*",), ("aws",)])
def test_a_disabled_default_provider_is_refused(world: SharedState, disabled: tuple[str, ...]) -> None:
    """If default providers are disabled, a resource needs an explicit provider."""
    program = stack(lambda: parameter("note"), default=DefaultProvider("us-west-2", disabled))

    result = run(program, world)

    assert [failure.code for failure in result.failures] == ["DefaultProviderDisabled"]


def test_tags_of_a_resource_override_default_tags(world: SharedState) -> None:
    """Resources have the default tags of their provider; their own tags override them."""

    def program() -> None:
        tagging = _north_provider(default_tags={"tags": {"fleet": "lab", "v": "1"}})
        parameter("note", opts=ResourceOptions(provider=tagging), tags={"v": "2"})

    result = up(world, program)

    assert entry(result, "note").outputs["tagsAll"] == {"fleet": "lab", "v": "2"}


def test_changed_default_tags_are_an_update(world: SharedState) -> None:
    """Changed default tags update the resources in place."""

    def program(fleet: str) -> None:
        tagging = _north_provider(default_tags={"tags": {"fleet": fleet}})
        parameter("note", opts=ResourceOptions(provider=tagging))

    up(world, lambda: program("one"))

    assert changes(up(world, lambda: program("two"))) == {"note": "update"}


REFUSED = {
    "another account": ({"allowed_account_ids": ["999999999999"]}, "InvalidAccount"),
    "an endpoint": ({"endpoints": [{"ec2": "http://203.0.113.1"}]}, "Unsupported"),
    "an unknown option": ({"use_fips_endpoint": True}, "Unsupported"),
}


@pytest.mark.parametrize(("options", "code"), REFUSED.values(), ids=REFUSED.keys())
def test_a_provider_of_another_account_is_refused(world: SharedState, options: dict[str, object], code: str) -> None:
    """A provider for another account or endpoint fails, and its resources are skipped."""
    result = run(stack(lambda: parameter("note", opts=ResourceOptions(provider=_north_provider(**options)))), world)

    assert [(failure.code, failure.skipped) for failure in result.failures] == [(code, False), ("Skipped", True)]


def test_the_simulated_account_is_allowed(world: SharedState) -> None:
    """A provider with the simulated account in allowed_account_ids works."""
    program = lambda: parameter("note", opts=ResourceOptions(provider=_north_provider(allowed_account_ids=[ACCOUNT])))  # noqa: E731

    assert changes(up(world, program)) == {"note": "create"}


def test_the_graph_hides_the_keys_of_a_provider(world: SharedState) -> None:
    """The credentials of a provider are hidden like secrets."""
    result = up(world, lambda: _north_provider(access_key="AKIAREAL", secret_key="hunter2"))  # noqa: S106  # not a real key

    assert "hunter2" not in str(graph(result.snapshot.entries.values()))
    assert "AKIAREAL" not in str(graph(result.snapshot.entries.values()))


def test_a_new_provider_region_replaces_all_resources(world: SharedState) -> None:
    """A provider with another region is replaced, and so are its resources, for this reason only."""

    def program(region: str) -> None:
        parameter("note", opts=ResourceOptions(provider=aws.Provider("main", region=region)))

    up(world, lambda: program("eu-north-1"))

    result = up(world, lambda: program("us-west-2"))

    assert changes(result) == {"note": "create-replacement replace delete-replaced"}
    assert [step.replace_keys for step in result.steps if step.op is Op.REPLACE] == [("region",), ("provider",)]


def test_another_provider_of_the_same_region_changes_nothing(world: SharedState) -> None:
    """The engine compares the inputs of providers, not their names."""

    def program(name: str) -> None:
        parameter("note", opts=ResourceOptions(provider=aws.Provider(name, region="eu-north-1")))

    up(world, lambda: program("one"))

    assert changes(up(world, lambda: program("two"))) == {}
