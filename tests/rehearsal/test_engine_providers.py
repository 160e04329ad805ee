"""Who serves a resource: explicit, inherited and default providers, and what a provider may be told."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pulumi
import pulumi_aws as aws
import pytest
from pulumi import ResourceOptions

from bedplate.rehearsal.registration import DefaultProvider
from bedplate.rehearsal.simulation import Simulation, running
from bedplate.rehearsal.stack import World, graph, run
from bedplate.rehearsal.state import Op
from tests.testlab.rehearsal.programs import ACCOUNT, changes, entry, parameter, stack, up


@pytest.fixture(scope="module")
def simulation() -> Iterator[Simulation]:
    """Run one simulated AWS for all of this file, in an environment that points to somebody's real account."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_PROFILE", "somebody")
        patch.setenv("AWS_ENDPOINT_URL", "http://203.0.113.1")
        patch.setenv("AWS_ACCESS_KEY_ID", "AKIAREAL")
        patch.setenv("AWS_CONFIG_FILE", str(Path(__file__)))
        with running(ACCOUNT) as simulation:
            yield simulation
        assert os.environ["AWS_PROFILE"] == "somebody"
        assert os.environ["AWS_ACCESS_KEY_ID"] == "AKIAREAL"


@pytest.fixture
def world(simulation: Simulation) -> Iterator[World]:
    """Return a world without stacks, and clear away what a test keeps."""
    yield World(simulation)
    for region in ("us-west-2", "eu-north-1"):
        simulation.call("ssm", region, "delete_parameters", {"Names": ["/note", "/other"]})


def _north(**more: object) -> aws.Provider:
    return aws.Provider("north", region="eu-north-1", **more)


def _explicit() -> None:
    parameter("note", opts=ResourceOptions(provider=_north()))


def _inherited() -> None:
    outer = pulumi.ComponentResource("t:t:Box", "outer", opts=ResourceOptions(providers=[_north()]))
    inner = pulumi.ComponentResource("t:t:Box", "inner", opts=ResourceOptions(parent=outer))
    parameter("note", opts=ResourceOptions(parent=inner))


@pytest.mark.parametrize("program", [_explicit, _inherited])
def test_a_provider_gives_its_region(world: World, program: Callable[[], None]) -> None:
    """A resource lives in the region of the provider it names, or of the one that a component above it names."""
    done = up(world, program)

    assert entry(done, "note").outputs["region"] == "eu-north-1"
    assert "::north::" in entry(done, "note").provider


def test_ambient_credentials_and_endpoints_have_no_effect(world: World) -> None:
    """Whatever the environment says of AWS, only the simulation is asked, and as its own account."""
    done = up(world, lambda: parameter("note"))

    assert f":{ACCOUNT}:" in entry(done, "note").outputs["arn"]


def test_the_default_provider_has_the_stacks_region(world: World) -> None:
    """A resource that names no provider gets the default one, under the engine's name for it."""
    done = up(world, lambda: parameter("note"))

    assert entry(done, "note").outputs["region"] == "us-west-2"
    assert entry(done, "note").provider.startswith("urn:pulumi:lab::lab::pulumi:providers:aws::default_")


@pytest.mark.parametrize("disabled", [("*",), ("aws",)])
def test_a_disabled_default_provider_serves_nothing(world: World, disabled: tuple[str, ...]) -> None:
    """Where default providers are disabled, a resource must name its own."""
    program = stack(lambda: parameter("note"), default=DefaultProvider("us-west-2", disabled))

    done = run(program, world)

    assert [failure.code for failure in done.failures] == ["DefaultProviderDisabled"]


def test_default_tags_lie_under_a_resources_own(world: World) -> None:
    """A provider's tags are on everything it makes, and the resource's own win."""

    def program() -> None:
        tagging = _north(default_tags={"tags": {"fleet": "lab", "v": "1"}})
        parameter("note", opts=ResourceOptions(provider=tagging), tags={"v": "2"})

    done = up(world, program)

    assert entry(done, "note").outputs["tagsAll"] == {"fleet": "lab", "v": "2"}


def test_changed_default_tags_are_an_update(world: World) -> None:
    """Everything that carries them is changed in place."""

    def program(fleet: str) -> None:
        tagging = _north(default_tags={"tags": {"fleet": fleet}})
        parameter("note", opts=ResourceOptions(provider=tagging))

    up(world, lambda: program("one"))

    assert changes(up(world, lambda: program("two"))) == {"note": "update"}


REFUSED = {
    "another account": ({"allowed_account_ids": ["999999999999"]}, "InvalidAccount"),
    "an endpoint": ({"endpoints": [{"ec2": "http://203.0.113.1"}]}, "Unsupported"),
    "an unknown option": ({"use_fips_endpoint": True}, "Unsupported"),
}


@pytest.mark.parametrize(("options", "code"), REFUSED.values(), ids=REFUSED.keys())
def test_a_provider_that_leads_elsewhere_is_refused(world: World, options: dict[str, object], code: str) -> None:
    """What would reach another account or another AWS is refused, and what needs it is skipped."""
    done = run(stack(lambda: parameter("note", opts=ResourceOptions(provider=_north(**options)))), world)

    assert [(failure.code, failure.skipped) for failure in done.failures] == [(code, False), ("Skipped", True)]


def test_the_own_account_is_allowed(world: World) -> None:
    """A provider that names the simulated account works."""
    program = lambda: parameter("note", opts=ResourceOptions(provider=_north(allowed_account_ids=[ACCOUNT])))  # noqa: E731

    assert changes(up(world, program)) == {"note": "create"}


def test_a_providers_keys_are_in_no_graph(world: World) -> None:
    """What a provider logs in with is hidden like any secret."""
    done = up(world, lambda: _north(access_key="AKIAREAL", secret_key="hunter2"))  # noqa: S106  # planted

    assert "hunter2" not in str(graph(done.snapshot.entries.values()))
    assert "AKIAREAL" not in str(graph(done.snapshot.entries.values()))


def test_a_provider_that_moves_takes_everything_along(world: World) -> None:
    """Another region is another provider: all it made is replaced, for that reason alone."""

    def program(region: str) -> None:
        parameter("note", opts=ResourceOptions(provider=aws.Provider("moving", region=region)))

    up(world, lambda: program("eu-north-1"))

    done = up(world, lambda: program("us-west-2"))

    assert changes(done) == {"note": "create-replacement replace delete-replaced"}
    assert [step.replace_keys for step in done.steps if step.op is Op.REPLACE] == [("region",), ("provider",)]


def test_another_provider_of_the_region_changes_nothing(world: World) -> None:
    """The engine compares the providers' settings, not their names."""

    def program(name: str) -> None:
        parameter("note", opts=ResourceOptions(provider=aws.Provider(name, region="eu-north-1")))

    up(world, lambda: program("one"))

    assert changes(up(world, lambda: program("two"))) == {}
