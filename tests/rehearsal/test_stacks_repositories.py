"""Repositories of the standard images: in each region, with copies from home, and kept."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

import pytest

from bedplate.operate.rehearsal import waves
from bedplate.plan.registries import RECIPES, registry_hosts
from bedplate.rehearsal.simulation import running
from bedplate.rehearsal.stack import SharedState, run
from bedplate.rehearsal.state import Entry
from tests.testlab.rehearsal.programs import EXAMPLES, plan_of

pytestmark = pytest.mark.nightly
_LAB = plan_of(EXAMPLES / "lab.yaml")
LAB = replace(_LAB, jobs=_LAB.jobs.model_copy(update={"ecr": True}))


@pytest.fixture(scope="module")
def entries() -> Iterator[Mapping[str, list[Entry]]]:
    """Yield the resources of ECR of each region, deployed."""
    with running(LAB.account) as simulation:
        world = SharedState(simulation)
        assert not [failure for wave in waves(LAB) for stack in wave for failure in run(stack, world).failures]
        yield {
            name.partition(".")[2]: [entry for entry in snapshot.entries.values() if entry.type.startswith("aws:ecr")]
            for name, snapshot in world.snapshots.items()
        }


def test_each_region_has_a_repository_for_each_image(entries: Mapping[str, list[Entry]]) -> None:
    """Tags cannot change, and Pulumi deletes none: records of runs name their images."""
    for region in LAB.regions:
        repositories = [entry for entry in entries[region.name] if entry.type.endswith(":Repository")]
        assert {entry.outputs["repositoryUrl"] for entry in repositories} == {
            f"{host}/lab/{recipe}"
            for recipe in RECIPES
            for host, at in registry_hosts(LAB).items()
            if at == region.name
        }
        assert {entry.inputs["imageTagMutability"] for entry in repositories} == {"IMMUTABLE"}
        assert all(entry.protect and entry.retain for entry in repositories)


def test_home_replicates_the_images_of_the_fleet_only(entries: Mapping[str, list[Entry]]) -> None:
    """To each other region, by the prefix of their names."""
    found = {region: [entry for entry in own if "replication" in entry.type] for region, own in entries.items()}
    ((region, (entry,)),) = ((region, own) for region, own in found.items() if own)

    (rule,) = entry.inputs["replicationConfiguration"]["rules"]
    assert region == LAB.home.name
    assert {target["region"] for target in rule["destinations"]} == {*LAB.regions_by_name} - {region}
    assert rule["repositoryFilters"] == [{"filter": "lab/", "filterType": "PREFIX_MATCH"}]
